// drop-relu:  relu(y) ==> y, where y lies on a grid without negative values
//   Why    the quantizer's lower end already cuts at zero: no operation, and conv + relu + pair equals conv + pair.
//   Exact  bit for bit: every value of the grid is >= 0, and none is -0.
//   Needs  scale > 0 and the zero point is the smallest code, in every channel.
//   Order  after move-view-relu has brought the view below the relu.
#include <fmt/format.h>

#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct DropRelu final : rewrite::Rule {
  std::string_view name() const override { return "drop-relu"; }
  std::string_view equation() const override { return "relu(y on a grid without negative values) ==> y"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids& grids) const override {
    const ir::Node& n = g.node(id);
    if (n.op != ir::Op::relu) return rewrite::no_match();
    const ir::Quantizer* q = grids.get(n.inputs[0]);
    if (q == nullptr) return rewrite::no_match();
    for (std::size_t c = 0; c < q->entries(); ++c) {
      if (!(q->scale[c] > 0)) return rewrite::refuse(fmt::format("scale {} is not positive", q->scale[c]));
      if (q->zero_point[c] != q->lo())
        return rewrite::refuse(fmt::format("{} holds negative values (zero point {}, smallest code {})", ir::to_string(*q),
                                           q->zero_point[c], q->lo()));
    }
    g.replace_uses(n.outputs[0], n.inputs[0]);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& drop_relu() {
  static const DropRelu law;
  return law;
}

}  // namespace octavo::quant
