// Products of bfloat16 by tdpbf16ps: tiles of 16 rows by 16 columns, two by two, 32 elements of the depth at a time. See bf16_products.h.
#include <cstddef>

#include "cpu/products/bf16_products.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace octavo::cpu {
namespace {

constexpr std::int64_t kSide = 16;  // rows, columns and pairs of a tile
// In this order: each uses the ones before.
// clang-format off
#include "cpu/block/vec_avx512.inc"
#include "cpu/products/bf16_packing.inc"
#include "cpu/products/tiles.inc"
// clang-format on

/// sums += left * right, in pairs
template <int kSums, int kLeft, int kRight>
void dot() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kLeft), "i"(kRight));
}

void multiply(float* sums, std::int64_t step, const std::uint32_t* left, std::int64_t left_step, std::int64_t rows,
              const std::uint32_t* right, std::int64_t right_step, std::int64_t columns, std::int64_t pairs) {
  for (std::int64_t c = 0; c < columns; c += 2 * kSide) {
    const bool two_columns = c + kSide < columns;
    for (std::int64_t r = 0; r < rows; r += 2 * kSide) {
      const bool two_rows = r + kSide < rows;
      float *const above = sums + r * step + c, *const below = above + kSide * step;
      clear<0>();
      clear<1>();
      clear<2>();
      clear<3>();
      for (std::int64_t g = 0; g < pairs; g += kSide) {
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
      store<0>(above, step);
      if (two_columns) store<1>(above + kSide, step);
      if (two_rows) store<2>(below, step);
      if (two_rows && two_columns) store<3>(below + kSide, step);
    }
  }
}

constexpr Bf16Products kProducts{kSide, kSide, pack_left, pack_right, pack_quotients, store_rounded, multiply, begin, end};

}  // namespace

const Bf16Products& amx_bf16_products() {
  return kProducts;
}

}  // namespace octavo::cpu
#endif
