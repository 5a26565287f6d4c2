// drop-leaky-relu:  leaky_relu(y) ==> y, where y is never negative
//   Why    the lower end of the quantizer already clips at zero, so no operation is needed, and a convolution with such a pair
//          needs no activation.
//   Exact  bit for bit: leaky_relu returns every value that is not below 0 unchanged, -0 included.
//   Needs  a range of y that starts at 0 or above (quant/range.h).
//   Order  none.

#include <cmath>

#include "base/causes/quant.h"
#include "quant/codes.h"
#include "quant/range.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct DropLeakyRelu final : rewrite::Rule {
  std::string_view name() const override { return "drop-leaky-relu"; }
  std::string_view equation() const override { return "leaky_relu(y that is never negative) ==> y"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node& n = g.node(id);
    if (n.op != ir::Op::leaky_relu || !ir::is_float(g.type(n.inputs[0]).dtype)) return rewrite::no_match();
    const Range y = range_of(g, n.inputs[0]);
    if (std::isinf(y.lo)) return rewrite::no_match();
    if (y.lo < 0) return rewrite::refuse(because<cause::values_below_zero>(y.lo));
    substitute(g, n.outputs[0], n.inputs[0]);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& drop_leaky_relu() {
  static const DropLeakyRelu law;
  return law;
}

}  // namespace octavo::quant
