// Codes of an activation from an approximation of it, with the bits of the program.
//
//   written:  code = clamp(round(f(x) / s)) + zero      f: a GELU or a SiLU, some 60 instructions with a division or two
//   computed: the same of an approximation of f, some 15 instructions
//
// The approximation is taken to differ from the program by at most `kWorst` times max(1, |f|). That is sampled, not proven: of 524,288 floats in each of eight
// spellings the worst was 0.95e-6 (tests/cuda/near_test.cc); Abramowitz and Stegun's bound of 1.5e-7 for erf gives 4e-7, roundings the rest. Where the quotient is further than that from the middle between two
// integers, both round to one code; the others, about one of a thousand, are computed as written.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "program/program.h"

namespace octavo::cuda {

/// What a requantization does, whatever the order of its steps: clamp(round(x / step), first, last) + zero.
struct Rounded {
  float step = 1;
  std::int32_t first = 0, last = 0, zero = 0;
};
/// Nothing for a leaky relu, several divisions, or bounds beyond 2048.
[[nodiscard]] std::optional<Rounded> rounded_by(const program::RequantizeSpan& span);

/// A program of one result, a code: `front` up to the activation's argument, a float; `back` from there on, of that as its accumulator.
struct NearCodes {
  program::Program front, back;
  program::Function function{};
  Rounded rounded;
  static constexpr float kWorst = 1.5e-6F;
};
/// Of a program that is marked (program/span.h). Nothing where it is none, or where too many codes would be computed twice.
[[nodiscard]] std::optional<NearCodes> near_codes(const program::Program& p);

/// `void NAME(const int (&acc)[n], const T (&xk)[n]..., int (&r0)[n])`, as emit_function_of_several declares it. `front`: of `codes`, perhaps shortened.
[[nodiscard]] std::string near_function(const NearCodes& codes, const program::Program& front, std::string_view name, int count);

/// `float octavo_near_NAME(float)`, what approximates the function.
[[nodiscard]] std::string near_text(program::Function f);

}  // namespace octavo::cuda
