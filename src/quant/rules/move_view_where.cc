// move-view-where:  q(where(c, a, b)) ==> where(c, q(a), q(b))
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written.
//   Exact  bit for bit: each element is one of a and b.
//   Needs  per axis: neither a nor b is broadcast along the axis.
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveViewWhere final : MovingLaw {
  std::string_view name() const override { return "move-view-where"; }
  std::string_view equation() const override { return "q(where(c, a, b)) ==> where(c, q(a), q(b))"; }
  ir::Op op() const override { return ir::Op::where; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override { return push_select(g, m, label, {1, 2}); }
};

}  // namespace

const MovingLaw& move_view_where() {
  static const MoveViewWhere law;
  return law;
}

}  // namespace octavo::quant
