// move-view-gather:  q(gather(x, i)) ==> gather(q(x), i)
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written.
//   Exact  bit for bit: elements are selected, constant or run-time indices alike.
//   Needs  per axis: the axis is not the gathered one.
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.
#include "base/causes/quant.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveViewGather final : MovingLaw {
  std::string_view name() const override { return "move-view-gather"; }
  std::string_view equation() const override { return "q(gather(x, i)) ==> gather(q(x), i)"; }
  ir::Op op() const override { return ir::Op::gather; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override {
    const auto axis = static_cast<int>(ir::get_int(m.attrs, "axis"));
    const auto rank = static_cast<int>(g.type(m.inputs[1]).shape.size());
    if (label.q.per_tensor()) return on_operands(m, label, -1, {0});
    if (label.q.axis < axis) return on_operands(m, label, label.q.axis, {0});
    if (label.q.axis >= axis + rank) return on_operands(m, label, label.q.axis - rank + 1, {0});
    return tl::unexpected(because<cause::axis_gathered>(label.q.axis));
  }
};

}  // namespace

const MovingLaw& move_view_gather() {
  static const MoveViewGather law;
  return law;
}

}  // namespace octavo::quant
