// move-view-transpose:  q(transpose(x)) ==> transpose(q(x))
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written.
//   Exact  bit for bit: elements keep their bits, only their places change.
//   Needs  per axis: the axis goes back through perm.
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveViewTranspose final : MovingLaw {
  std::string_view name() const override { return "move-view-transpose"; }
  std::string_view equation() const override { return "q(transpose(x)) ==> transpose(q(x))"; }
  ir::Op op() const override { return ir::Op::transpose; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override {
    (void)g;
    if (label.q.per_tensor()) return on_operands(m, label, -1);
    return on_operands(m, label, static_cast<int>(ir::get_ints(m.attrs, "perm")[static_cast<std::size_t>(label.q.axis)]));
  }
};

}  // namespace

const MovingLaw& move_view_transpose() {
  static const MoveViewTranspose law;
  return law;
}

}  // namespace octavo::quant
