// drop-clip:  clip(y, lo, hi) ==> y without the bounds that y never reaches;  clip(y, 0, inf) ==> relu(y)
//   Why    a quantizer made for Relu6 already ends at 6: no operation. One spelling for what remains, so that equal meanings meet.
//   Exact  bit for bit: max(y, lo) = y for lo <= every value of y's grid, and the same above.
//   Needs  to drop a finite bound: y lies on a grid inside it, in every channel, and lo <= hi. Infinite bounds are always dropped.
//   Order  after move-view-clip has brought the view below the clip and rounded its bounds to the grid.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct DropClip final : rewrite::Rule {
  std::string_view name() const override { return "drop-clip"; }
  std::string_view equation() const override { return "clip(y on a grid inside the bounds) ==> y; clip(y, 0, inf) ==> relu(y)"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids& grids) const override {
    ir::Node& n = g.node(id);
    if (n.op != ir::Op::clip || !ir::is_float(g.type(n.inputs[0]).dtype)) return rewrite::no_match();
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double lo = ir::get_float(n.attrs, "min", -kInfinity), hi = ir::get_float(n.attrs, "max", kInfinity);
    if (!(lo <= hi)) return rewrite::refuse(fmt::format("the bounds {} and {} cross: every element becomes a constant", lo, hi));
    bool drop_lo = lo == -kInfinity, drop_hi = hi == kInfinity;
    std::string reason;
    if (const ir::Quantizer* q = grids.get(n.inputs[0])) {
      const auto [least, most] = range(*q);
      drop_lo = drop_lo || lo <= least;
      drop_hi = drop_hi || hi >= most;
      if (!drop_lo || !drop_hi)
        reason = fmt::format("{} reaches from {} to {}, beyond {}..{}", ir::to_string(*q), least, most, lo, hi);
    }
    if (drop_lo && drop_hi) {
      g.replace_uses(n.outputs[0], n.inputs[0]);
      return rewrite::applied();
    }
    if (lo == 0 && drop_hi) {
      const ir::ValueId from = n.outputs[0];
      const ir::ValueId relu = ir::add_inferred(g, ir::Op::relu, {n.inputs[0]}, {}, n.origin);
      g.replace_uses(from, relu, /*join_origin=*/false);
      return rewrite::applied();
    }
    const bool changed = (drop_lo && n.attrs.erase("min") > 0) | (drop_hi && n.attrs.erase("max") > 0);
    if (changed) return rewrite::applied();
    return reason.empty() ? rewrite::no_match() : rewrite::refuse(std::move(reason));
  }

 private:
  /// What all channels stay within: the least of the minima and the greatest of the maxima. A negative scale turns the range
  /// around.
  static std::pair<float, float> range(const ir::Quantizer& q) {
    float least = INFINITY, most = -INFINITY;
    for (std::size_t c = 0; c < q.entries(); ++c) {
      for (const std::int64_t code : {q.lo(), q.hi()}) {
        const float x = ir::dequantize_one(static_cast<std::int32_t>(code), q.scale[c], q.zero_point[c], q.arith);
        least = std::min(least, x);
        most = std::max(most, x);
      }
    }
    return {least, most};
  }
};

}  // namespace

const rewrite::Rule& drop_clip() {
  static const DropClip law;
  return law;
}

}  // namespace octavo::quant
