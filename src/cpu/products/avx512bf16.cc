// Products of bfloat16 by vdpbf16ps: 12 rows by two vectors of columns in registers. See bf16_products.h.
#include <cstddef>

#include "cpu/products/bf16_products.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace octavo::cpu {
namespace {

// In this order: each uses the ones before.
// clang-format off
#include "cpu/block/vec_avx512.inc"
#include "cpu/products/bf16_packing.inc"
// clang-format on

inline __m512bh pairs_of(__m512i v) {
  return __builtin_bit_cast(__m512bh, v);
}

template <int R, int V>
void tile(float* sums, std::int64_t step, const std::uint32_t* left, std::int64_t left_step, const std::uint32_t* right,
          std::int64_t right_step, std::int64_t pairs) {
  F acc[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) acc[r][v] = zero_f();
  }
  for (std::int64_t g = 0; g < pairs; ++g) {
    __m512bh b[V];
    for (int v = 0; v < V; ++v) b[v] = pairs_of(_mm512_loadu_si512(right + g * right_step + v * kLanes));
    for (int r = 0; r < R; ++r) {
      const __m512bh a = pairs_of(_mm512_set1_epi32(static_cast<std::int32_t>(left[r * left_step + g])));
      for (int v = 0; v < V; ++v) acc[r][v] = _mm512_dpbf16_ps(acc[r][v], a, b[v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) store_f(sums + r * step + v * kLanes, acc[r][v]);
  }
}

template <int R, int V>
void strip(float* sums, std::int64_t step, const std::uint32_t* left, std::int64_t left_step, std::int64_t rows,
           const std::uint32_t* right, std::int64_t right_step, std::int64_t pairs) {
  std::int64_t r = 0;
  for (; r + R <= rows; r += R) tile<R, V>(sums + r * step, step, left + r * left_step, left_step, right, right_step, pairs);
  if constexpr (R > 1) {
    constexpr int kLess = R > 4 ? 4 : 1;
    if (r < rows) strip<kLess, V>(sums + r * step, step, left + r * left_step, left_step, rows - r, right, right_step, pairs);
  }
}

void multiply(float* sums, std::int64_t step, const std::uint32_t* left, std::int64_t left_step, std::int64_t rows,
              const std::uint32_t* right, std::int64_t right_step, std::int64_t columns, std::int64_t pairs) {
  std::int64_t c = 0;
  for (; c + 2 * kLanes <= columns; c += 2 * kLanes)
    strip<12, 2>(sums + c, step, left, left_step, rows, right + c, right_step, pairs);
  if (c < columns) strip<12, 1>(sums + c, step, left, left_step, rows, right + c, right_step, pairs);
}
void nothing() {}

constexpr Bf16Products kProducts{1, 1, pack_left, pack_right, pack_quotients, store_rounded, multiply, nothing, nothing};

}  // namespace

const Bf16Products& avx512bf16_products() {
  return kProducts;
}

}  // namespace octavo::cpu
#endif
