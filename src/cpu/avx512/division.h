// Division by a constant as multiplications, where that is exact.
//
//   written:  code = clamp(round(x / s))
//   computed: q = x * r,  q' = fma(fma(q, -s, x), r, q),  code = clamp(round(q'))        r = 1 / s, rounded
//
// Why: a vdivps of 16 lanes occupies Intel's divider for 16 clocks. Exact: q' is the rounded value of x / s + d with |d| below
// 2^-20 of its last bit, so q' is the quotient or, where x / s lies that close to the middle of two floats, the other of the two.
// The rounded codes can then differ only where x / s is within a few last bits of k - 1/2, and `same_codes` tries every such x for
// every code that the clamp leaves. A constant for which one differs keeps its division. Infinite q passes unchanged
// (Instr::keeps_infinity).
#pragma once

#include <cstdint>

#include "cpu/avx512/lower.h"

namespace octavo::cpu::avx512 {

/// Both forms give the same codes from `first` to `last` for every float x. Some 10 us for 256 codes.
[[nodiscard]] bool same_codes(float s, std::int32_t first, std::int32_t last);
/// Replaces the divisions whose quotients become nothing but clamped codes. Returns how many.
int multiply_where_exact(Epilogue& e);

}  // namespace octavo::cpu::avx512
