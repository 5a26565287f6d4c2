// move-view-gather-elements:  q(gather_elements(x, i)) ==> gather_elements(q(x), i)
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written.
//   Exact  bit for bit: elements are selected.
//   Needs  per axis: the axis is not the gathered one and is taken whole.
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.

#include "base/causes/quant.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveViewGatherElements final : MovingLaw {
  std::string_view name() const override { return "move-view-gather-elements"; }
  std::string_view equation() const override { return "q(gather_elements(x, i)) ==> gather_elements(q(x), i)"; }
  ir::Op op() const override { return ir::Op::gather_elements; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override {
    if (label.q.per_tensor()) return on_operands(m, label, -1, {0});
    if (label.q.axis == ir::get_int(m.attrs, "axis")) return tl::unexpected(because<cause::axis_gathered>(label.q.axis));
    const std::int64_t extent = g.type(m.inputs[0]).shape[static_cast<std::size_t>(label.q.axis)];
    if (static_cast<std::int64_t>(label.q.entries()) != extent)
      return tl::unexpected(because<cause::axis_gathered_in_part>(label.q.axis, label.q.entries(), extent));
    return on_operands(m, label, label.q.axis, {0});
  }
};

}  // namespace

const MovingLaw& move_view_gather_elements() {
  static const MoveViewGatherElements law;
  return law;
}

}  // namespace octavo::quant
