// move-view-relu:  q(relu(x)) ==> relu(q(x))
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written. drop-relu
//          then removes the relu where q has no negative values.
//   Exact  bit for bit: q is non-decreasing and q(0) = 0, so q(max(x, 0)) = max(q(x), 0).
//   Needs  scale > 0. Only views move: relu cuts codes at code 0, not at the code of the value 0.
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.
#include "base/causes/quant.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveViewRelu final : MovingLaw {
  std::string_view name() const override { return "move-view-relu"; }
  std::string_view equation() const override { return "q(relu(x)) ==> relu(q(x))"; }
  ir::Op op() const override { return ir::Op::relu; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override {
    (void)g;
    if (label.kind != Label::Kind::view) return tl::unexpected(because<cause::no_form_on_codes>("relu"));
    if (auto why = not_increasing(label)) return tl::unexpected(*why);
    return on_operands(m, label, label.q.axis);
  }
};

}  // namespace

const MovingLaw& move_view_relu() {
  static const MoveViewRelu law;
  return law;
}

}  // namespace octavo::quant
