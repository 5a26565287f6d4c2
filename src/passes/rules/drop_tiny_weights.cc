// drop-tiny-weights:  conv(x, w, b) ==> conv(x, w', b), w' = 0 where |w| < 2^-100, the largest |w| being 2^-60 or more; also conv_transpose, gemm
//   Why    weight decay leaves channels of a trained network with weights of 1e-38. Their products and what is computed of them are subnormal, and
//          an Intel processor takes some 150 clocks for each instruction that meets one: a fifth of the time of a text detector.
//   Exact  not bit for bit. With K products a sum, the result differs by at most K 2^-100 max|x|; what rounding leaves of a sum with the largest
//          weight is 2^-24 2^-60 max|x|, more than that for K below 2^16.
//   Needs  w is a plain f32 constant, and K at most 2^15.
//   Order  after fold-batch-norm, which multiplies weights: not while an affine reads the result.
#include <algorithm>
#include <cmath>

#include "passes/rules.h"

namespace octavo::passes {
namespace {

using ir::Op;

constexpr std::int64_t kMostProducts = std::int64_t{1} << 15;

struct DropTinyWeights final : rewrite::Rule {
  std::string_view name() const override { return "drop-tiny-weights"; }
  std::string_view equation() const override {
    return "conv(x, w, b) ==> conv(x, w', b), w' = 0 where |w| < 2^-100, the largest |w| being 2^-60 or more";
  }
  bool exact() const override { return false; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if ((n.op != Op::conv && n.op != Op::conv_transpose && n.op != Op::gemm) || !g.is_constant(n.inputs[1]))
      return rewrite::no_match();
    const ir::Node& weights = g.producer(n.inputs[1]);
    if (weights.quantizer || weights.payload.dtype() != ir::DType::f32) return rewrite::no_match();
    const auto from = weights.payload.data<float>();
    const float least = std::ldexp(1.0F, -100), most = std::ldexp(1.0F, -60);
    const auto tiny = [&](float w) { return w != 0 && std::fabs(w) < least; };
    if (std::none_of(from.begin(), from.end(), tiny)) return rewrite::no_match();
    if (std::none_of(from.begin(), from.end(), [&](float w) { return std::fabs(w) >= most; })) return rewrite::no_match();
    const ir::Shape& shape = weights.payload.shape();
    if (weights.payload.size() / std::max<std::int64_t>(1, shape[n.op == Op::conv ? 0 : 1]) > kMostProducts)
      return rewrite::no_match();
    for (const auto& [user, slot] : g.users(n.outputs[0])) {
      if (g.node(user).op == Op::affine) return rewrite::no_match();
    }
    ir::Tensor kept(weights.payload.type());
    std::transform(from.begin(), from.end(), kept.mutable_data<float>().begin(), [&](float w) { return tiny(w) ? 0.0F : w; });
    std::vector<ir::ValueId> inputs = n.inputs;
    inputs[1] = g.add_constant(std::move(kept), g.value(n.inputs[1]).name);
    const ir::ValueId y = g.add(n.op, std::move(inputs), g.type(n.outputs[0]), n.attrs, n.origin, g.value(n.outputs[0]).name);
    g.node(g.value(y).producer).name = n.name;
    g.value(y).range = g.value(n.outputs[0]).range;
    g.replace_uses(n.outputs[0], y);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& drop_tiny_weights() {
  static const DropTinyWeights rule;
  return rule;
}

}  // namespace octavo::passes
