// move-view-tile:  q(tile(x)) ==> tile(q(x))
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written.
//   Exact  bit for bit: elements are repeated.
//   Needs  per axis: the axis is not repeated.
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.

#include "base/causes/quant.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveViewTile final : MovingLaw {
  std::string_view name() const override { return "move-view-tile"; }
  std::string_view equation() const override { return "q(tile(x)) ==> tile(q(x))"; }
  ir::Op op() const override { return ir::Op::tile; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override {
    (void)g;
    if (!label.q.per_tensor()) {
      const auto repeats = ir::get_ints(m.attrs, "repeats");
      const auto axis = static_cast<std::size_t>(label.q.axis);
      if (axis < repeats.size() && repeats[axis] != 1)
        return tl::unexpected(because<cause::axis_repeated>(label.q.axis, repeats[axis]));
    }
    return on_operands(m, label, label.q.axis);
  }
};

}  // namespace

const MovingLaw& move_view_tile() {
  static const MoveViewTile law;
  return law;
}

}  // namespace octavo::quant
