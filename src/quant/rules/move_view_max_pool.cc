// move-view-max-pool:  q(max_pool(x)) ==> max_pool(q(x))
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written. Average
//          pooling computes new values and is not moved through.
//   Exact  bit for bit on values without NaN: q is non-decreasing, so the maximum of q(x) is q of the maximum; padding never
//          wins.
//   Needs  scale > 0; no window lies wholly in the padding (its -inf would become the smallest code); per axis: batch or channel.
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.

#include <optional>
#include <string>

#include "base/causes/quant.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

/// The first window that holds no element of x, if there is one.
std::optional<Reason> empty_window(const ir::Graph& g, const ir::Node& m) {
  const ir::Shape& in = g.type(m.inputs[0]).shape;
  const ir::Shape& out = g.type(m.outputs[0]).shape;
  const auto kernel = ir::get_ints(m.attrs, "kernel"), strides = ir::get_ints(m.attrs, "strides");
  const auto pads = ir::get_ints(m.attrs, "pads"), dilations = ir::get_ints(m.attrs, "dilations");
  for (std::size_t d = 0; d < kernel.size(); ++d) {
    const std::int64_t stride = strides.empty() ? 1 : strides[d], dilation = dilations.empty() ? 1 : dilations[d];
    const std::int64_t pad = pads.empty() ? 0 : pads[d], extent = in[d + 2];
    for (std::int64_t o = 0; o < out[d + 2]; ++o) {
      bool inside = false;
      for (std::int64_t k = 0; k < kernel[d] && !inside; ++k) {
        const std::int64_t i = o * stride - pad + k * dilation;
        inside = i >= 0 && i < extent;
      }
      if (!inside) return because<cause::window_holds_padding_only>(o, d + 2);
    }
  }
  return std::nullopt;
}

struct MoveViewMaxPool final : MovingLaw {
  std::string_view name() const override { return "move-view-max-pool"; }
  std::string_view equation() const override { return "q(max_pool(x)) ==> max_pool(q(x))"; }
  ir::Op op() const override { return ir::Op::max_pool; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override {
    if (auto why = not_increasing(label)) return tl::unexpected(*why);
    if (label.q.axis >= 2) return tl::unexpected(because<cause::axis_pooled>(label.q.axis));
    if (auto why = empty_window(g, m)) return tl::unexpected(*why);
    return on_operands(m, label, label.q.axis);
  }
};

}  // namespace

const MovingLaw& move_view_max_pool() {
  static const MoveViewMaxPool law;
  return law;
}

}  // namespace octavo::quant
