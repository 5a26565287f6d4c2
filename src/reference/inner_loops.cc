#include "reference/inner_loops.h"

#include <algorithm>
#include <cmath>

namespace octavo::reference {
namespace {

void fma_row_portable(float* sum, const float* w, float x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] = std::fma(w[i], x, sum[i]);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void fma_row_avx2(float* __restrict sum, const float* __restrict w, float x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] = __builtin_fmaf(w[i], x, sum[i]);
}
#endif

}  // namespace

float fused(float a, float b, float c) {
  return std::fma(a, b, c);
}

void fma_row(float* sum, const float* w, float x, std::int64_t n) {
#if defined(__x86_64__)
  static const bool has_fma = __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
  if (has_fma) return fma_row_avx2(sum, w, x, n);
#endif
  fma_row_portable(sum, w, x, n);
}

std::int64_t dot(const std::int16_t* x, const std::int16_t* w, std::int64_t n) {
  constexpr std::int64_t kBlock = 4096;  // 4096 * 511 * 511 < 2^31
  std::int64_t sum = 0;
  for (std::int64_t from = 0; from < n; from += kBlock) {
    std::int32_t part = 0;
    const std::int64_t to = std::min(n, from + kBlock);
    for (std::int64_t i = from; i < to; ++i) part += static_cast<std::int32_t>(x[i]) * static_cast<std::int32_t>(w[i]);
    sum += part;
  }
  return sum;
}

}  // namespace octavo::reference
