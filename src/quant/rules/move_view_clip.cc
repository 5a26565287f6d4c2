// move-view-clip:  q(clip(x, lo, hi)) ==> clip(q(x), q(lo), q(hi))
//   Why    every path then reads the value below through q, on whichever side of the operator the pair was written. drop-clip
//          then removes the bounds that q never reaches.
//   Exact  bit for bit on values without NaN: q is non-decreasing, so it commutes with max and min.
//   Needs  only views move; scale > 0; lo <= hi; per axis: each bound is read as the same value in all channels. Absent (infinite)
//          bounds stay absent.
//   Order  none; each step lowers the number of data-movement operators below a view, so the laws end.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/causes/quant.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct MoveViewClip final : MovingLaw {
  std::string_view name() const override { return "move-view-clip"; }
  std::string_view equation() const override { return "q(clip(x, lo, hi)) ==> clip(q(x), q(lo), q(hi))"; }
  ir::Op op() const override { return ir::Op::clip; }
  Move push(const ir::Graph& g, const ir::Node& m, const Label& label) const override {
    (void)g;
    if (label.kind != Label::Kind::view) return tl::unexpected(because<cause::no_form_on_codes>("clip"));
    if (auto why = not_increasing(label)) return tl::unexpected(*why);
    const auto bound_of = [&](std::string_view key, double absent) {
      return static_cast<float>(ir::get_float(m.attrs, key, absent));
    };
    const float lo = bound_of("min", -kInfinity), hi = bound_of("max", kInfinity);
    if (!(lo <= hi)) return tl::unexpected(because<cause::bounds_cross>(lo, hi));
    Moved moved = on_operands(m, label, label.q.axis);
    for (const auto& [key, bound] : {std::pair{"min", lo}, std::pair{"max", hi}}) {
      if (std::isinf(bound)) continue;
      const float read = apply_label(label, bound);
      for (std::size_t c = 1; c < label.q.entries(); ++c) {
        const float other = apply_label(label, bound, static_cast<std::int64_t>(c));
        if (other != read) return tl::unexpected(because<cause::axis_bound_differs>(label.q.axis, bound, read, other));
      }
      if (std::bit_cast<std::uint32_t>(read) != std::bit_cast<std::uint32_t>(bound)) moved.attrs[key] = static_cast<double>(read);
    }
    return moved;
  }
};

}  // namespace

const MovingLaw& move_view_clip() {
  static const MoveViewClip law;
  return law;
}

}  // namespace octavo::quant
