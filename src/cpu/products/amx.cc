// Products of codes by tdpbusd: tiles of 16 rows by 16 columns, two by two, 64 codes of the depth at a time. See products.h.
#include <cstddef>

#include "cpu/products/products.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace octavo::cpu {
namespace {

constexpr int kGroup = 4;
constexpr std::int64_t kSide = 16;  // rows, columns and groups of a tile
#include "cpu/products/packing.inc"

/// What ldtilecfg reads: eight tiles of 16 rows of 64 bytes.
struct alignas(64) Configuration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// The compilers' own functions for tiles do not say that they read and write memory.
void begin() {
  const Configuration c;
  __asm__ volatile("ldtilecfg %0" : : "m"(c));
}
void end() {
  __asm__ volatile("tilerelease");
}
template <int kTile>
void load(const void* rows, std::int64_t step) {
  __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(rows), "r"(step * 4) : "memory");
}
template <int kTile>
void store(void* rows, std::int64_t step) {
  __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(kTile), "r"(rows), "r"(step * 4) : "memory");
}
/// sums += left (u8) * right (s8)
template <int kSums, int kLeft, int kRight>
void dot() {
  __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kLeft), "i"(kRight));
}

/// The sums that products are added to.
void fill(std::int32_t* sums, std::int64_t step, const std::int32_t* row_terms, const std::int32_t* column_terms, std::int64_t rows,
          std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const __m512i row = _mm512_set1_epi32(row_terms[r]);
    for (std::int64_t c = 0; c < columns; c += kSide)
      _mm512_storeu_si512(sums + r * step + c, _mm512_add_epi32(row, _mm512_loadu_si512(column_terms + c)));
  }
}

void multiply(std::int32_t* sums, std::int64_t step, const std::int32_t* row_terms, const std::int32_t* column_terms,
              const std::uint32_t* left, std::int64_t left_step, std::int64_t rows, const std::uint32_t* right,
              std::int64_t right_step, std::int64_t columns, std::int64_t groups) {
  fill(sums, step, row_terms, column_terms, rows, columns);
  for (std::int64_t r = 0; r < rows; r += 2 * kSide) {
    const bool two_rows = r + kSide < rows;
    std::int32_t *const above = sums + r * step, *const below = above + kSide * step;
    for (std::int64_t c = 0; c < columns; c += 2 * kSide) {
      const bool two_columns = c + kSide < columns;
      load<0>(above + c, step);
      if (two_columns) load<1>(above + c + kSide, step);
      if (two_rows) load<2>(below + c, step);
      if (two_rows && two_columns) load<3>(below + c + kSide, step);
      for (std::int64_t g = 0; g < groups; g += kSide) {
        load<4>(left + r * left_step + g, left_step);
        load<6>(right + g * right_step + c, right_step);
        dot<0, 4, 6>();
        if (two_columns) {
          load<7>(right + g * right_step + c + kSide, right_step);
          dot<1, 4, 7>();
        }
        if (two_rows) {
          load<5>(left + (r + kSide) * left_step + g, left_step);
          dot<2, 5, 6>();
          if (two_columns) dot<3, 5, 7>();
        }
      }
      store<0>(above + c, step);
      if (two_columns) store<1>(above + c + kSide, step);
      if (two_rows) store<2>(below + c, step);
      if (two_rows && two_columns) store<3>(below + c + kSide, step);
    }
  }
}

constexpr CodeProducts kProducts{kGroup, kSide, kSide, pack_left, pack_right, row_terms, column_terms, multiply, begin, end};

}  // namespace

const CodeProducts& amx_products() {
  return kProducts;
}

}  // namespace octavo::cpu
#endif
