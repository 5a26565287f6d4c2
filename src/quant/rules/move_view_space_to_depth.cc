// move-view-space-to-depth:  q(space_to_depth(x)) ==> space_to_depth(q(x))
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written.
//   Exact  bit for bit: elements keep their bits, only their places change.
//   Needs  per axis: the axis is the batch (channels and space are mixed).
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.
#include "base/causes/quant.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveViewSpaceToDepth final : MovingLaw {
  std::string_view name() const override { return "move-view-space-to-depth"; }
  std::string_view equation() const override { return "q(space_to_depth(x)) ==> space_to_depth(q(x))"; }
  ir::Op op() const override { return ir::Op::space_to_depth; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override {
    (void)g;
    if (label.q.axis > 0) return tl::unexpected(because<cause::axis_mixed>(label.q.axis));
    return on_operands(m, label, label.q.axis);
  }
};

}  // namespace

const MovingLaw& move_view_space_to_depth() {
  static const MoveViewSpaceToDepth law;
  return law;
}

}  // namespace octavo::quant
