// move-view-reduce-min:  q(reduce_min(x)) ==> reduce_min(q(x))
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written.
//   Exact  bit for bit on values without NaN: q is non-decreasing, so the minimum of q(x) is q of the minimum.
//   Needs  scale > 0; per axis: the axis is not reduced.
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveViewReduceMin final : MovingLaw {
  std::string_view name() const override { return "move-view-reduce-min"; }
  std::string_view equation() const override { return "q(reduce_min(x)) ==> reduce_min(q(x))"; }
  ir::Op op() const override { return ir::Op::reduce_min; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override { return push_reduce(g, m, label); }
};

}  // namespace

const MovingLaw& move_view_reduce_min() {
  static const MoveViewReduceMin law;
  return law;
}

}  // namespace octavo::quant
