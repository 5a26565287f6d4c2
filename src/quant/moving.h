// Labels and the operators they move through: the shared part of the moving laws (docs/semantics.md, "Moving").
#pragma once

#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "base/reason.h"
#include "ir/graph.h"
#include "rewrite/rule.h"

namespace octavo::quant {

/// An element-wise, non-decreasing function written on a value by quantization nodes.
///   view         f(x) = dequantize_q(quantize_q(x))
///   dequantize   f(c) = dequantize_q(c), from codes to floats
///   recode       f(x) = dequantize_q(quantize_from(x)): a pair with unequal parameters
struct Label {
  enum class Kind { view, dequantize, recode } kind = Kind::view;
  ir::Quantizer q;
  std::optional<ir::Quantizer> from;  ///< recode only; per tensor, as q then is
};
/// f at one element of channel c.
[[nodiscard]] float apply_label(const Label& label, float x, std::int64_t channel = 0);
[[nodiscard]] std::string to_string(const Label& label);

/// What f(M(x...)) becomes: M'(f0(x0), f1(x1)...).
struct Moved {
  std::vector<std::optional<ir::Quantizer>>
      operands;     ///< parallel to the inputs; nullopt: not data (indices, a condition), left alone
  ir::Attrs attrs;  ///< of M': bounds and pad values have gone through f
};
using Move = tl::expected<Moved, Reason>;  ///< or the condition that fails, with the values

/// One moving law: f(M(x)) ==> M(f(x)) for one operator M. As a rule it moves views; `push` serves the other labels too.
class MovingLaw : public rewrite::Rule {
 public:
  [[nodiscard]] virtual ir::Op op() const = 0;
  /// `m` has the operator op() and lives in `g`; `label` sits on its output.
  [[nodiscard]] virtual Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const = 0;
  [[nodiscard]] rewrite::Outcome apply(ir::Graph& g, ir::NodeId node, const ir::Grids& grids) const final;
};
/// The law of an operator, or nullptr if labels do not move through it.
[[nodiscard]] const MovingLaw* find_move(ir::Op op);

/// Builds M' over `operands` beside m and returns its value; m stays for its other readers.
ir::ValueId copy_moved(ir::Graph& g, ir::NodeId m, const Moved& moved, std::vector<ir::ValueId> operands);

// For `push` functions.
/// The same label on every data operand (`slots` empty: all inputs are data), per-axis ones on `axis` of the operand.
[[nodiscard]] Moved on_operands(const ir::Node& m, const Label& label, int axis, const std::vector<std::size_t>& slots = {});
/// An error unless every scale is positive: order-preserving laws need it.
[[nodiscard]] std::optional<Reason> not_increasing(const Label& label);
/// Element-wise selection (max, min, where) with broadcasting: the label on the data operands `slots`.
[[nodiscard]] Move push_select(const ir::Graph& g, const ir::Node& m, const Label& label, const std::vector<std::size_t>& slots);
/// True if a pad node adds elements of its constant value.
[[nodiscard]] bool adds_constant(const ir::Node& pad);
/// reduce_max, reduce_min.
[[nodiscard]] Move push_reduce(const ir::Graph& g, const ir::Node& m, const Label& label);

}  // namespace octavo::quant
