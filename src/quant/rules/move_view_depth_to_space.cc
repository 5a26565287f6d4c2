// move-view-depth-to-space:  q(depth_to_space(x)) ==> depth_to_space(q(x))
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written.
//   Exact  bit for bit: elements keep their bits, only their places change.
//   Needs  per axis: the axis is the batch (channels and space are mixed).
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.
#include "base/causes/quant.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveViewDepthToSpace final : MovingLaw {
  std::string_view name() const override { return "move-view-depth-to-space"; }
  std::string_view equation() const override { return "q(depth_to_space(x)) ==> depth_to_space(q(x))"; }
  ir::Op op() const override { return ir::Op::depth_to_space; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override {
    (void)g;
    if (label.q.axis > 0) return tl::unexpected(because<cause::axis_mixed>(label.q.axis));
    return on_operands(m, label, label.q.axis);
  }
};

}  // namespace

const MovingLaw& move_view_depth_to_space() {
  static const MoveViewDepthToSpace law;
  return law;
}

}  // namespace octavo::quant
