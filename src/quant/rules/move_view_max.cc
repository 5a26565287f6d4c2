// move-view-max:  q(max(a, b)) ==> max(q(a), q(b))
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written.
//   Exact  bit for bit on values without NaN: q is non-decreasing, so it commutes with max.
//   Needs  scale > 0; per axis: no operand is broadcast along the axis. A constant operand becomes a coded constant.
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveViewMax final : MovingLaw {
  std::string_view name() const override { return "move-view-max"; }
  std::string_view equation() const override { return "q(max(a, b)) ==> max(q(a), q(b))"; }
  ir::Op op() const override { return ir::Op::max; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override {
    if (auto why = not_increasing(label)) return tl::unexpected(*why);
    return push_select(g, m, label, {0, 1});
  }
};

}  // namespace

const MovingLaw& move_view_max() {
  static const MoveViewMax law;
  return law;
}

}  // namespace octavo::quant
