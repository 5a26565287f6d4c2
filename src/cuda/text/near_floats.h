// Activations whose results are rounded to float16 or bfloat16, from approximations of float32.
//
//   written:  y = round16(g(f(x)))     f: a GELU, a SiLU or erf, 30 to 60 instructions with a division or two that are rounded correctly
//   computed: the same of an approximation of f, 5 to 18 instructions
//
// The approximation differs from the program by at most `kWorst` times max(1, |f|), before the result is rounded to 16 bits, which alone moves float16 by up to
// 2^-11 and bfloat16 by up to 2^-8 of the result. That is sampled, not proven: the worst of what tests/cuda/near_floats_test.cc tries is 0.95e-6. Results below 1e-3
// can therefore be some units of float16 away from the program's; there the program itself is as far from the function, because it computes 1 + erf(x) of a sum
// that cancels. Infinities and NaN give what the program gives.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "program/program.h"

namespace octavo::cuda {

/// A program whose results are all float16 or bfloat16: `front` up to the activation's argument, a float; `back` has the activation's result as one operand more,
/// number `front.operand_count`. Divisions by constants are products in both.
struct NearFloats {
  program::Program front, back;
  program::Function function{};
  static constexpr float kWorst = 1.5e-6F;
};
/// Of a program that is marked (program/span.h). Nothing where a result has another type, or where there is no such activation.
[[nodiscard]] std::optional<NearFloats> near_floats(const program::Program& p);

/// The function that emit_function declares for `p`, of which `near` was made.
[[nodiscard]] std::string near_floats_function(const NearFloats& near, const program::Program& p, std::string_view name);

/// `float octavo_near_NAME(float)` with its name, what approximates the function.
struct NearText {
  std::string_view name, text;
};
[[nodiscard]] NearText near_floats_text(program::Function f);

/// Instructions of an element, for estimates.
[[nodiscard]] int near_floats_instructions(const NearFloats& near);

}  // namespace octavo::cuda
