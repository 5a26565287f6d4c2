// move-view-gather-nd:  q(gather_nd(x, i)) ==> gather_nd(q(x), i)
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written.
//   Exact  bit for bit: elements are selected.
//   Needs  q is per tensor.
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.
#include "base/causes/quant.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveViewGatherNd final : MovingLaw {
  std::string_view name() const override { return "move-view-gather-nd"; }
  std::string_view equation() const override { return "q(gather_nd(x, i)) ==> gather_nd(q(x), i)"; }
  ir::Op op() const override { return ir::Op::gather_nd; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override {
    (void)g;
    if (!label.q.per_tensor()) return tl::unexpected(because<cause::axis_not_kept>(label.q.axis, "gather_nd"));
    return on_operands(m, label, -1, {0});
  }
};

}  // namespace

const MovingLaw& move_view_gather_nd() {
  static const MoveViewGatherNd law;
  return law;
}

}  // namespace octavo::quant
