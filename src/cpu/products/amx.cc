// Products of codes by tdpbusd: tiles of 16 rows by 16 columns, two by two, 64 codes of the depth at a time. See products.h.
#include <cstddef>

#include "cpu/products/products.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace octavo::cpu {
namespace {

constexpr int kGroup = 4;
constexpr std::int64_t kSide = 16;  // rows, columns and groups of a tile
// In this order: each uses the ones before.
// clang-format off
#include "cpu/block/vec_avx512.inc"
#include "cpu/products/packing.inc"
#include "cpu/products/tiles.inc"
// clang-format on

/// sums += left (u8) * right (s8)
template <int kSums, int kLeft, int kRight>
void dot() {
  __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kLeft), "i"(kRight));
}

/// What the zero points add, in a pass of its own: tiles loaded from prefilled sums take longer.
void add_terms(std::int32_t* sums, std::int64_t step, const std::int32_t* row_terms, const std::int32_t* column_terms,
               std::int64_t rows, std::int64_t columns) {
  for (std::int64_t c = 0; c < columns; c += kSide) {
    const I column = load_i(column_terms + c);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::int32_t* const at = sums + r * step + c;
      store_i(at, add_i(load_i(at), add_i(column, splat_i(row_terms[r]))));
    }
  }
}

/// Up to two by two tiles of sums.
template <bool kTwoRows, bool kTwoColumns>
void square(std::int32_t* sums, std::int64_t step, const std::uint32_t* left, std::int64_t left_step, const std::uint32_t* right,
            std::int64_t right_step, std::int64_t groups) {
  clear<0>();
  if constexpr (kTwoColumns) clear<1>();
  if constexpr (kTwoRows) clear<2>();
  if constexpr (kTwoRows && kTwoColumns) clear<3>();
  for (std::int64_t g = 0; g < groups; g += kSide) {
    load<4>(left + g, left_step);
    load<6>(right + g * right_step, right_step);
    dot<0, 4, 6>();
    if constexpr (kTwoColumns) {
      load<7>(right + g * right_step + kSide, right_step);
      dot<1, 4, 7>();
    }
    if constexpr (kTwoRows) {
      load<5>(left + kSide * left_step + g, left_step);
      dot<2, 5, 6>();
    }
    if constexpr (kTwoRows && kTwoColumns) dot<3, 5, 7>();
  }
  store<0>(sums, step);
  if constexpr (kTwoColumns) store<1>(sums + kSide, step);
  if constexpr (kTwoRows) store<2>(sums + kSide * step, step);
  if constexpr (kTwoRows && kTwoColumns) store<3>(sums + kSide * step + kSide, step);
}

void multiply_alone(std::int32_t* sums, std::int64_t step, const std::uint32_t* left, std::int64_t left_step, std::int64_t rows,
                    const std::uint32_t* right, std::int64_t right_step, std::int64_t columns, std::int64_t groups) {
  for (std::int64_t r = 0; r < rows; r += 2 * kSide) {
    const bool tall = r + kSide < rows;
    for (std::int64_t c = 0; c < columns; c += 2 * kSide) {
      const bool wide = c + kSide < columns;
      const auto one =
          tall ? (wide ? square<true, true> : square<true, false>) : (wide ? square<false, true> : square<false, false>);
      one(sums + r * step + c, step, left + r * left_step, left_step, right + c, right_step, groups);
    }
  }
}

void multiply(std::int32_t* sums, std::int64_t step, const std::int32_t* row_terms, const std::int32_t* column_terms,
              const std::uint32_t* left, std::int64_t left_step, std::int64_t rows, const std::uint32_t* right,
              std::int64_t right_step, std::int64_t columns, std::int64_t groups) {
  multiply_alone(sums, step, left, left_step, rows, right, right_step, columns, groups);
  add_terms(sums, step, row_terms, column_terms, rows, columns);
}

constexpr CodeProducts kProducts{kGroup,       kSide,    kSide,          pack_left, pack_right, row_terms,
                                 column_terms, multiply, multiply_alone, begin,     end};

}  // namespace

const CodeProducts& amx_products() {
  return kProducts;
}

}  // namespace octavo::cpu
#endif
