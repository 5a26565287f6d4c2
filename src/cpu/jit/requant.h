// Requantization as one fma.
//
//   written:  code = clamp(round(steps(scale[c] * x + bias[c])) + zero),  steps: clamps and a division by the output's scale
//   computed: code = clamp(round(m[c] * x + b[c]) + zero)                 x = float(acc)
//   a leaky relu among the steps: max(t, alpha * t) of t = m[c] * x + b[c]
//
// Why: the division, the clamps and their constants cost as much as everything else in an epilogue; a depthwise convolution has few
// dots to hide them behind. Exact: both sides never decrease in acc, so they are equal for every acc within the bound exactly if
// each code is reached at the same acc. `one_fma` finds where the written form reaches every code, by evaluating it, and looks for
// m and b near scale / s and bias / s that reach all of them there. Where rounding leaves no such pair, a block of channels keeps
// the written form. Both forms are the same function: nothing here changes a result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cpu/jit/constants.h"
#include "cpu/jit/lower.h"
#include "ir/tensor.h"

namespace octavo::cpu::jit {

struct Requant {
  int scale = -1, bias = -1;  ///< f32 operands, per channel or uniform; bias -1: none
  bool fused = true;          ///< fma(x, scale, bias); otherwise a product, then a sum
  using Step = program::Step;
  std::vector<Step> steps;                  ///< without nan0: acc, scale and bias are finite
  float alpha = 1;                          ///< of the one leaky relu among the steps, in (0, 1); 1: none
  std::int32_t zero = 0, lo = 0, hi = 255;  ///< Pack's; bounds of the code
  std::int32_t first = 0, last = 255;       ///< the codes that steps leave possible, within lo..hi

  /// The code as written, of one accumulator.
  [[nodiscard]] std::int32_t code(std::int64_t acc, float s, float b) const;
  /// What the steps, the rounding and the bounds make of a value.
  [[nodiscard]] std::int32_t code_of(float y) const;
  /// The code of a value behind the steps.
  [[nodiscard]] std::int32_t code_of_rounded(float t) const;
};

/// Empty: value v is scale * acc + bias, and which f32 operands those are (bias -1: none). Otherwise why not.
[[nodiscard]] Reasons find_affine(const LoweredEpilogue& e, int v, int& scale, int& bias, bool& fused);
/// Empty: `out` describes the packed value, and every output is a sink of the pack. Otherwise why not.
[[nodiscard]] Reasons find_requant(const LoweredEpilogue& e, Requant& out);
/// The steps that lead to the rounded value, and the codes that they leave possible, to `out` (whose zero and bounds are set), and the value x before them.
/// Empty, or why they are none that never decrease.
[[nodiscard]] Reasons find_steps(const LoweredEpilogue& e, int rounded, int& x, Requant& out);
/// The same of any rounded value of the program: the caller has set zero and bounds.
[[nodiscard]] Reasons find_requant_of(const LoweredEpilogue& e, int value, Requant& out);

/// m and b for x = float(sum), acc = sum + offset, proven equal for |sum| <= limit; nothing when none was found. Some microseconds.
struct Line {
  float m = 0, b = 0;
};
[[nodiscard]] std::optional<Line> one_fma(const Requant& r, float scale, float bias, std::int64_t limit, std::int64_t offset = 0);
/// clamp(saturate(round(m * x + b) + zero)), or of the leaky relu of the line, as the kernels compute it.
[[nodiscard]] std::int32_t line_code(const Requant& r, const Line& line, std::int64_t sum);

/// Where no single fma does: the written y = scale * acc + bias, times 1 / s as the sum of two floats, code = clamp(round(fma(y,
/// high, y * low)) + zero).
struct Quotient {
  float high = 1, low = 0;
  static Quotient of(const Requant& r);
};
/// Proven equal for |acc| <= limit.
[[nodiscard]] bool by_quotient(const Requant& r, const Quotient& q, float scale, float bias, std::int64_t limit);
[[nodiscard]] std::int32_t quotient_code(const Requant& r, const Quotient& q, float scale, float bias, std::int64_t acc);

/// Scale and bias of channels; bias 0 without one.
class ChannelValues {
 public:
  ChannelValues() = default;
  ChannelValues(const region::Stage& stage, const region::Plan& plan, const Requant& r)
      : scale_(stage, plan, r.scale), bias_(stage, plan, r.bias) {}
  /// Without data there are no values. Error: `internal`.
  [[nodiscard]] Status check() const {
    OCTAVO_CHECK(scale_.check());
    return bias_.check();
  }
  [[nodiscard]] float scale(std::int64_t channel) const { return scale_.at<float>(channel); }
  [[nodiscard]] float bias(std::int64_t channel) const { return bias_.at<float>(channel); }

 private:
  ChannelOperand scale_, bias_;
};

/// Scale and bias are constants of the plan.
[[nodiscard]] bool foldable(const region::Stage& stage, const region::Plan& plan, const Requant& r);

/// A block of channels that is computed one way.
struct LineBlock {
  std::int64_t first_channel = 0, init = 0;  ///< as in Block
  std::vector<std::int64_t> limits;          ///< a bound of |sum|, a channel
  std::vector<std::int64_t> offsets;         ///< acc - sum; empty: 0
};
/// Two constants: f32[2 * init_count], the m of all blocks at their `init`, then the b; s32[init_count / 16], 1 at init / 16 of
/// blocks whose channels all have lines.
[[nodiscard]] Result<std::vector<ir::Tensor>> pack_lines(const ChannelValues& values, const Requant& r,
                                                         const std::vector<LineBlock>& blocks, std::int64_t init_count);

/// Without code yet: the results of `e`, from two floats a channel as operands 0 and 1.
[[nodiscard]] LoweredEpilogue of_two_channel_values(const LoweredEpilogue& e);

}  // namespace octavo::cpu::jit
