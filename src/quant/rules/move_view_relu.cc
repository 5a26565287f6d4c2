// move-view-relu:  q(relu(x)) ==> relu(q(x))
//   Why    the value below is then read through q by every path, whatever side of the operator the pair was written on. drop-relu
//          then removes the relu where q has no negative values.
//   Exact  bit for bit: q is non-decreasing and q(0) = 0, so q(max(x, 0)) = max(q(x), 0).
//   Needs  scale > 0, f(0) = 0: always so for a view; for other labels the zero points must agree.
//   Order  none; each step lowers the number of moving operators below a view, so the laws end.
#include <fmt/format.h>

#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveViewRelu final : MovingLaw {
  std::string_view name() const override { return "move-view-relu"; }
  std::string_view equation() const override { return "q(relu(x)) ==> relu(q(x))"; }
  ir::Op op() const override { return ir::Op::relu; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override {
    (void)g;
    if (auto why = not_increasing(label)) return tl::unexpected(*why);
    for (std::size_t c = 0; c < label.q.entries(); ++c) {
      const float zero = apply_label(label, 0.0F, static_cast<std::int64_t>(c));
      if (zero != 0.0F)
        return tl::unexpected(fmt::format("{} maps 0 to {}, relu would cut at another place", to_string(label), zero));
    }
    return on_operands(m, label, label.q.axis);
  }
};

}  // namespace

const MovingLaw& move_view_relu() {
  static const MoveViewRelu law;
  return law;
}

}  // namespace octavo::quant
