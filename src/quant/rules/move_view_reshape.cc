// move-view-reshape:  q(reshape(x)) ==> reshape(q(x))
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written.
//   Exact  bit for bit: elements keep their bits and their row-major order.
//   Needs  per axis: one dimension of x has the same extent, and as many elements before it; an axis that is split or merged is
//          refused.
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.

#include "base/causes/quant.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveViewReshape final : MovingLaw {
  std::string_view name() const override { return "move-view-reshape"; }
  std::string_view equation() const override { return "q(reshape(x)) ==> reshape(q(x))"; }
  ir::Op op() const override { return ir::Op::reshape; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override {
    if (label.q.per_tensor()) return on_operands(m, label, -1);
    const ir::Shape& in = g.type(m.inputs[0]).shape;
    const ir::Shape& out = g.type(m.outputs[0]).shape;
    const auto axis = static_cast<std::size_t>(label.q.axis);
    std::int64_t outer = 1;
    for (std::size_t i = 0; i < axis; ++i) outer *= out[i];
    std::int64_t before = 1;
    for (std::size_t i = 0; i < in.size(); before *= in[i], ++i) {
      if (before == outer && in[i] == out[axis]) return on_operands(m, label, static_cast<int>(i));
    }
    return tl::unexpected(because<cause::axis_reshaped>(label.q.axis, ir::to_string(in), ir::to_string(out)));
  }
};

}  // namespace

const MovingLaw& move_view_reshape() {
  static const MoveViewReshape law;
  return law;
}

}  // namespace octavo::quant
