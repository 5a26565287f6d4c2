// The three loops that the evaluator spends its time in. Plain C++; where the processor has fma, the same loop compiled for it (an
// exact operation gives the same bits either way).
#pragma once

#include <cstdint>

namespace octavo::reference {

/// a * b + c with one rounding.
[[nodiscard]] float fused(float a, float b, float c);
/// sum[i] = fused(w[i], x, sum[i]) for i in 0..n.
void fma_row(float* sum, const float* w, float x, std::int64_t n);
/// Exact sum of x[i] * w[i]; |x| and |w| up to 511.
[[nodiscard]] std::int64_t dot(const std::int16_t* x, const std::int16_t* w, std::int64_t n);

}  // namespace octavo::reference
