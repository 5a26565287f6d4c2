// drop-relu:  relu(y) ==> y, where y is never negative
//   Why    the lower end of the quantizer already clips at zero, so no operation is needed; conv + relu + pair equals conv + pair.
//   Exact  bit for bit: every value is >= 0 and none is -0 or NaN.
//   Needs  a range of y that starts at 0 or above (quant/range.h): an unsigned quantizer with zero point 0, another relu or clip
//          below, also through views and data-movement operators; scale > 0.
//   Order  after move-view-relu has brought the view below the relu.

#include <cmath>

#include "base/causes/quant.h"
#include "quant/codes.h"
#include "quant/range.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct DropRelu final : rewrite::Rule {
  std::string_view name() const override { return "drop-relu"; }
  std::string_view equation() const override { return "relu(y that is never negative) ==> y"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node& n = g.node(id);
    if (n.op != ir::Op::relu || !ir::is_float(g.type(n.inputs[0]).dtype)) return rewrite::no_match();
    const Range y = range_of(g, n.inputs[0]);
    if (std::isinf(y.lo)) return rewrite::no_match();
    if (!y.never_negative()) {
      return rewrite::refuse(y.lo < 0 ? because<cause::values_below_zero>(y.lo) : because<cause::values_may_be_minus_zero>());
    }
    substitute(g, n.outputs[0], n.inputs[0]);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& drop_relu() {
  static const DropRelu law;
  return law;
}

}  // namespace octavo::quant
