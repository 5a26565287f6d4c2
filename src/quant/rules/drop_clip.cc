// drop-clip:  clip(y, lo, hi) ==> y without the bounds that y never passes;  clip(y, 0, inf) ==> relu(y)
//   Why    a quantizer for Relu6 already ends at 6, so no operation is needed. The remaining bounds get one spelling, so that equal
//          meanings become equal nodes.
//   Exact  bit for bit: max(y, lo) = y for lo <= every value of y, and the same above.
//   Needs  to drop a finite bound: the range of y (quant/range.h) lies inside it, and lo <= hi. Infinite bounds are always dropped.
//   Order  after move-view-clip has brought the view below the clip and rounded its bounds to the grid.

#include <cmath>
#include <limits>

#include "base/causes/quant.h"
#include "quant/codes.h"
#include "quant/range.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct DropClip final : rewrite::Rule {
  std::string_view name() const override { return "drop-clip"; }
  std::string_view equation() const override { return "clip(y inside the bounds) ==> y; clip(y, 0, inf) ==> relu(y)"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    ir::Node& n = g.node(id);
    if (n.op != ir::Op::clip || !ir::is_float(g.type(n.inputs[0]).dtype)) return rewrite::no_match();
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double lo = ir::get_float(n.attrs, "min", -kInfinity), hi = ir::get_float(n.attrs, "max", kInfinity);
    if (!(lo <= hi)) return rewrite::refuse(because<cause::bounds_cross>(lo, hi));
    const Range y = range_of(g, n.inputs[0]);
    // A bound that equals the end of the range changes nothing either, unless both are 0 and the signs of zero may differ.
    const auto touches = [&](double bound, float end) {
      return bound == end && !(bound == 0 && (y.minus_zero || std::signbit(bound)));
    };
    const bool drop_lo = lo == -kInfinity || (std::isfinite(y.lo) && (lo < y.lo || touches(lo, y.lo)));
    const bool drop_hi = hi == kInfinity || (std::isfinite(y.hi) && (hi > y.hi || touches(hi, y.hi)));
    const ir::ValueId from = n.outputs[0];
    if (drop_lo && drop_hi) {
      substitute(g, from, n.inputs[0]);
      return rewrite::applied();
    }
    if (lo == 0 && !std::signbit(lo) && drop_hi) {
      const ir::ValueId relu = ir::add_inferred(g, ir::Op::relu, {n.inputs[0]}, {}, n.origin);
      substitute(g, from, relu, /*join_origin=*/false);
      return rewrite::applied();
    }
    const bool changed = (drop_lo && n.attrs.erase("min") > 0) | (drop_hi && n.attrs.erase("max") > 0);
    if (changed) return rewrite::applied();
    if (std::isinf(y.lo) && std::isinf(y.hi)) return rewrite::no_match();
    return rewrite::refuse(because<cause::values_beyond_bounds>(y.lo, y.hi, lo, hi));
  }
};

}  // namespace

const rewrite::Rule& drop_clip() {
  static const DropClip law;
  return law;
}

}  // namespace octavo::quant
