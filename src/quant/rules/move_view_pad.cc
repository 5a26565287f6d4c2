// move-view-pad:  q(pad(x, v)) ==> pad(q(x), q(v))
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written.
//   Exact  bit for bit: reflected and repeated elements keep their bits; the constant v becomes q(v), as it did when it was read
//          through q.
//   Needs  per axis: the axis is not padded, and with a constant, q(v) is the same in all channels.
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.

#include <bit>
#include <cstdint>

#include "base/causes/quant.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct MoveViewPad final : MovingLaw {
  std::string_view name() const override { return "move-view-pad"; }
  std::string_view equation() const override { return "q(pad(x, v)) ==> pad(q(x), q(v))"; }
  ir::Op op() const override { return ir::Op::pad; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override {
    Moved moved = on_operands(m, label, label.q.axis);
    if (!label.q.per_tensor()) {
      const auto pads = ir::get_ints(m.attrs, "pads");
      const auto axis = static_cast<std::size_t>(label.q.axis);
      if (pads[axis] != 0 || pads[axis + pads.size() / 2] != 0) return tl::unexpected(because<cause::axis_padded>(label.q.axis));
    }
    (void)g;
    if (!adds_constant(m)) return moved;
    const auto value = static_cast<float>(ir::get_float(m.attrs, "value"));
    const float padded = apply_label(label, value);
    for (std::size_t c = 1; c < label.q.entries(); ++c) {
      if (apply_label(label, value, static_cast<std::int64_t>(c)) != padded)
        return tl::unexpected(because<cause::axis_padding_differs>(label.q.axis, value, padded,
                                                                   apply_label(label, value, static_cast<std::int64_t>(c))));
    }
    if (std::bit_cast<std::uint32_t>(padded) != std::bit_cast<std::uint32_t>(value))
      moved.attrs["value"] = static_cast<double>(padded);
    return moved;
  }
};

}  // namespace

const MovingLaw& move_view_pad() {
  static const MoveViewPad law;
  return law;
}

}  // namespace octavo::quant
