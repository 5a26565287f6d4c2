// Marked spans: which values of a program are, operation by operation, a function that has a name.
//
// A program defines its bits by primitive operations alone. A back end that has a better form of a whole function (one fma for a requantization, a polynomial
// for a SiLU) has to know where the function begins and ends, and with which parameters. A span says so; it never says more than the code does: `verify` writes
// its definition out again and compares, so a wrong span is an error and not a wrong result.
//
// `mark` finds all spans, from the code alone. `simplify`, the last step of lowering, ends with it, and so does reading a program from a file: planned and
// loaded programs have the same spans, and a file cannot bring any. Whoever changes a program by hand simplifies or marks it again, or clears its spans.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

namespace octavo::program {

struct Program;
enum class Op : std::uint8_t;
union Scalar;

/// Functions of one float, as program/math.h defines them. `gelu_of_erf` is x * (1 + erf(x / sqrt 2)) / 2 as exporters spell it: as a quotient or a product,
/// and with the 1/2 in three places.
enum class Function : std::uint8_t { sigmoid, silu, tanh, erf, gelu, gelu_tanh, gelu_of_erf, mish, softplus, elu };
[[nodiscard]] std::string_view name_of(Function f);

/// result = function(x).
struct FunctionSpan {
  Function function = Function::sigmoid;
  int x = -1, result = -1;  ///< values
  std::uint8_t form = 0;    ///< of gelu_of_erf: which spelling
  bool operator==(const FunctionSpan&) const = default;
};

/// One step of a requantization, of a float and one constant.
struct Step {
  /// div, max, min: by the constant; nan0; sel_lt: y < 0 ? constant * y : y, a leaky relu.
  Op op{};
  float constant = 0;
  bool constant_first = false;  ///< of max and min: max(constant, y), which lets a NaN pass
  int from = -1;                ///< the value y
  bool operator==(const Step&) const = default;
  [[nodiscard]] float operator()(float y) const;
};

/// rounded = f2i(steps(x)), result = rounded + zero. The steps are all those in front of the rounding that have one constant, the divisors above 0 and finite:
/// for a quantizer behind activations the activations, the division by its scale and the bounds of its codes.
struct RequantizeSpan {
  int x = -1, rounded = -1, result = -1;
  std::vector<Step> steps;  ///< in order
  std::int32_t zero = 0;    ///< result is `rounded` itself where no constant is added
  bool operator==(const RequantizeSpan&) const = default;
};

/// shifted = code - zero, result = float(shifted) * scale. `shifted` is `code` itself where the zero point is 0.
struct DequantizeSpan {
  int code = -1, shifted = -1, result = -1;
  float scale = 1;
  std::int32_t zero = 0;
  bool operator==(const DequantizeSpan&) const = default;
};

using Span = std::variant<FunctionSpan, RequantizeSpan, DequantizeSpan>;

/// The value that the span begins with, and the one that it ends with.
[[nodiscard]] int first_of(const Span& s);
[[nodiscard]] int last_of(const Span& s);

/// Replaces p's spans by all that there are. `p` is well formed but for its spans.
void mark(Program& p);
/// Does the code say what the span says? The indices may be any numbers.
[[nodiscard]] bool holds(const Program& p, const Span& s);
/// Appends the definition of `s`, of value x. Returns its result.
int expand(Program& p, const Span& s, int x);
/// What the definition means, independent of how it is expanded: a float for a FunctionSpan and a DequantizeSpan, else an int32.
[[nodiscard]] Scalar evaluate(const Span& s, Scalar x);

}  // namespace octavo::program
