// Types that only store: 4- and 2-bit integers, 8- and 4-bit floats. One element takes one byte here; files pack them. Nothing
// computes in them: operators cast, quantize, dequantize or move them.
#pragma once

#include <cstdint>

#include "ir/tensor.h"

namespace octavo::ir {

[[nodiscard]] inline bool is_small_float(DType t) {
  return t >= DType::f8e4m3fn && t <= DType::f4e2m1;
}
[[nodiscard]] inline bool is_small_int(DType t) {
  return t >= DType::s4 && t <= DType::u2;
}
/// Bits of one element of a small type in a file: 8, 4 or 2.
[[nodiscard]] int small_bits(DType t);
/// Smallest and largest value of a small integer type.
[[nodiscard]] std::int64_t small_lo(DType t);
[[nodiscard]] std::int64_t small_hi(DType t);

/// The value of a code of a small float type (exact; NaN and infinities where the type has them).
[[nodiscard]] float small_to_f32(DType t, std::uint8_t code);
enum class ScaleRounding : std::
    uint8_t;  // of f8e8m0 only: where a magnitude between two powers of two goes (facts.h); the default is up
/// Round to nearest even. Out of range: the largest finite value if `saturate`, else infinity, or NaN where the type has none
/// (f4e2m1 has neither: the largest). NaN is NaN; in f4e2m1 it is -0.
[[nodiscard]] std::uint8_t f32_to_small(DType t, float x, bool saturate = true, ScaleRounding power = {});

}  // namespace octavo::ir
