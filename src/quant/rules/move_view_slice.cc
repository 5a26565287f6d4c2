// move-view-slice:  q(slice(x)) ==> slice(q(x))
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written.
//   Exact  bit for bit: elements keep their bits, some are left out.
//   Needs  per axis: the axis is taken whole, forwards or backwards (the entries of elements that are cut away would be
//          invented).
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.

#include <algorithm>

#include "base/causes/quant.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveViewSlice final : MovingLaw {
  std::string_view name() const override { return "move-view-slice"; }
  std::string_view equation() const override { return "q(slice(x)) ==> slice(q(x))"; }
  ir::Op op() const override { return ir::Op::slice; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override {
    if (label.q.per_tensor()) return on_operands(m, label, -1);
    const auto axis = static_cast<std::size_t>(label.q.axis);
    const std::int64_t extent = g.type(m.inputs[0]).shape[axis];
    const std::int64_t step = ir::get_ints(m.attrs, "steps").empty() ? 1 : ir::get_ints(m.attrs, "steps")[axis];
    if (static_cast<std::int64_t>(label.q.entries()) != extent)
      return tl::unexpected(because<cause::axis_sliced_in_part>(label.q.axis, label.q.entries(), extent));
    Label turned = label;
    if (step < 0) {
      std::reverse(turned.q.scale.begin(), turned.q.scale.end());
      std::reverse(turned.q.zero_point.begin(), turned.q.zero_point.end());
    }
    return on_operands(m, turned, label.q.axis);
  }
};

}  // namespace

const MovingLaw& move_view_slice() {
  static const MoveViewSlice law;
  return law;
}

}  // namespace octavo::quant
