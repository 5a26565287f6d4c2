// merge-pad:  conv(pad(x, p, 0), w, q) ==> conv(x, w, p + q)
//   Why    a convolution skips what lies outside the image; a tensor with zeros around it would be written and read first. Exporters write a Pad where
//          a framework pads one side more than the other, as causal convolutions and "same" padding with strides do.
//   Exact  bit for bit: a product with 0 adds nothing to a sum, and skipped products are not added.
//   Needs  spatial dimensions alone are padded, with zeros, by less than the window reaches; finite constant weights.
//   Order  after the laws have moved views above the pad. The pad stays where others read it.
#include <algorithm>
#include <cmath>

#include "passes/rules.h"

namespace octavo::passes {
namespace {

using ir::Op;

bool finite(const ir::Node& weights) {
  if (weights.quantizer || !ir::is_float(weights.payload.dtype())) return true;
  if (weights.payload.dtype() != ir::DType::f32) return false;
  const auto w = weights.payload.data<float>();
  return std::all_of(w.begin(), w.end(), [](float v) { return std::isfinite(v); });
}

struct MergePad final : rewrite::Rule {
  std::string_view name() const override { return "merge-pad"; }
  std::string_view equation() const override { return "conv(pad(x, p, 0), w, q) ==> conv(x, w, p + q)"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    ir::Node& n = g.node(id);
    if (n.op != Op::conv || !g.is_constant(n.inputs[1])) return rewrite::no_match();
    const ir::Node& pad = g.producer(n.inputs[0]);
    if (pad.op != Op::pad || g.type(n.inputs[0]).dtype != ir::DType::f32) return rewrite::no_match();
    if (ir::get_text(pad.attrs, "mode", "constant") != "constant" || ir::get_float(pad.attrs, "value") != 0)
      return rewrite::no_match();
    const auto around = ir::get_ints(pad.attrs, "pads");
    const ir::Shape& kernel = g.type(n.inputs[1]).shape;
    const std::size_t rank = kernel.size(), spatial = rank - 2;
    auto pads = ir::get_ints(n.attrs, "pads"), dilations = ir::get_ints(n.attrs, "dilations");
    pads.resize(2 * spatial, 0), dilations.resize(spatial, 1);
    for (std::size_t side = 0; side < 2; ++side) {
      for (std::size_t d = 0; d < rank; ++d) {
        const std::int64_t more = around[side * rank + d];
        if (more < 0 || (d < 2 && more != 0)) return rewrite::no_match();
        if (d < 2) continue;
        pads[side * spatial + d - 2] += more;
        if (pads[side * spatial + d - 2] > (kernel[d] - 1) * dilations[d - 2]) return rewrite::no_match();
      }
    }
    if (!finite(g.producer(n.inputs[1]))) return rewrite::no_match();
    n.attrs["pads"] = pads;
    n.inputs[0] = pad.inputs[0];
    n.origin.insert(pad.origin.begin(), pad.origin.end());
    g.touch();
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& merge_pad() {
  static const MergePad rule;
  return rule;
}

}  // namespace octavo::passes
