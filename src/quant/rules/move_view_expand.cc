// move-view-expand:  q(expand(x)) ==> expand(q(x))
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written.
//   Exact  bit for bit: elements are repeated.
//   Needs  per axis: x is not broadcast along the axis.
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveViewExpand final : MovingLaw {
  std::string_view name() const override { return "move-view-expand"; }
  std::string_view equation() const override { return "q(expand(x)) ==> expand(q(x))"; }
  ir::Op op() const override { return ir::Op::expand; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override { return push_select(g, m, label, {0}); }
};

}  // namespace

const MovingLaw& move_view_expand() {
  static const MoveViewExpand law;
  return law;
}

}  // namespace octavo::quant
