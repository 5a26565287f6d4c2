// Division by a constant as multiplications, where that is exact.
//
//   written:  code = clamp(round(x / s))
//   computed: code = clamp(round(fma(x, high, x * low)))        1 / s = high + low, high the float below
//
// Why: a division costs some ten times a multiplication, on a CPU (a vdivps of 16 lanes occupies Intel's divider for 16 clocks) and
// on a GPU (a correctly rounded one is about ten instructions and a branch). Exact: the fma's value before its rounding is x / s + d
// with |d| below 2^-20 of the last bit, so the result is the quotient or, where x / s lies that close to the middle of two floats,
// the other of the two. The rounded codes can then differ only where x / s is within a few last bits of k - 1/2, and `same_codes`
// tries every such x for every code that the clamp leaves. A constant for which one differs keeps its division. Both high and low
// are positive, so an infinite x stays what it is.
#pragma once

#include <cstdint>

namespace octavo::program {

/// 1 / s as the sum of two floats above 0.
struct Reciprocal {
  float high = 1, low = 0;
  static Reciprocal of(float s);
};
/// Both forms give the same codes from `first` to `last` for every float x. Some 10 us for 256 codes.
[[nodiscard]] bool same_codes(float s, std::int32_t first, std::int32_t last);

}  // namespace octavo::program
