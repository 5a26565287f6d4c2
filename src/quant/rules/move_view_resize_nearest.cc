// move-view-resize-nearest:  q(resize_nearest(x)) ==> resize_nearest(q(x))
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written. Linear
//          and cubic resizing compute new values and are not moved through.
//   Exact  bit for bit: elements are repeated or left out, never mixed.
//   Needs  per axis: the axis is not resized.
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.
#include <string>

#include "base/causes/quant.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveViewResizeNearest final : MovingLaw {
  std::string_view name() const override { return "move-view-resize-nearest"; }
  std::string_view equation() const override { return "q(resize_nearest(x)) ==> resize_nearest(q(x))"; }
  ir::Op op() const override { return ir::Op::resize_nearest; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override {
    (void)g;
    if (!label.q.per_tensor() && m.attrs.contains("index" + std::to_string(label.q.axis)))
      return tl::unexpected(because<cause::axis_resized>(label.q.axis));
    return on_operands(m, label, label.q.axis);
  }
};

}  // namespace

const MovingLaw& move_view_resize_nearest() {
  static const MoveViewResizeNearest law;
  return law;
}

}  // namespace octavo::quant
