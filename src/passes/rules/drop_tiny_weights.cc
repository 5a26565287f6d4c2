// drop-tiny-weights:  conv(x, w, b) ==> conv(x, w', b'), w' = 0 where |w| < 2^-100, the largest |w| being 2^-60 or more; b' likewise; also
//   conv_transpose, gemm
//   Why    weight decay leaves channels of a trained network with weights and biases of 1e-38 and less. Their products and sums are
//          subnormal, and an Intel processor takes some 150 clocks for each instruction with a subnormal operand: a fifth of the
//          time of a text detector.
//   Exact  not bit for bit. With K products a sum, a result differs by at most K 2^-100 max|x| + 2^-100, less than what rounding may leave of a
//          result with the largest weight, 2^-24 2^-60 max|x|, for K below 2^16. That is a bound for the whole result, not for each element: a
//          channel that has tiny weights alone becomes its bias, which an output, a normalization or a large scale behind it would show.
//   Needs  w is a plain f32 constant, and K at most 2^15; a bias is included if it is such a constant too.
//   Order  after fold-batch-norm, which multiplies weights: not while an affine reads the result.
#include <algorithm>
#include <cmath>
#include <optional>

#include "passes/rules.h"

namespace octavo::passes {
namespace {

using ir::Op;

constexpr std::int64_t kMostProducts = std::int64_t{1} << 15;

/// The constant with zeros for its tiny elements; nothing where it has none, or no others beside them.
std::optional<ir::Tensor> without_tiny(const ir::Node& constant) {
  if (constant.quantizer || constant.payload.dtype() != ir::DType::f32) return std::nullopt;
  const auto from = constant.payload.data<float>();
  const float least = std::ldexp(1.0F, -100), most = std::ldexp(1.0F, -60);
  const auto tiny = [&](float v) { return v != 0 && std::fabs(v) < least; };
  if (std::none_of(from.begin(), from.end(), tiny)) return std::nullopt;
  if (std::none_of(from.begin(), from.end(), [&](float v) { return std::fabs(v) >= most; })) return std::nullopt;
  ir::Tensor kept(constant.payload.type());
  std::transform(from.begin(), from.end(), kept.mutable_data<float>().begin(), [&](float v) { return tiny(v) ? 0.0F : v; });
  return kept;
}

struct DropTinyWeights final : rewrite::Rule {
  std::string_view name() const override { return "drop-tiny-weights"; }
  std::string_view equation() const override {
    return "conv(x, w, b) ==> conv(x, w', b'), w' = 0 where |w| < 2^-100, the largest |w| being 2^-60 or more; b' likewise";
  }
  bool exact() const override { return false; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if ((n.op != Op::conv && n.op != Op::conv_transpose && n.op != Op::gemm) || !g.is_constant(n.inputs[1]))
      return rewrite::no_match();
    const ir::Node& weights = g.producer(n.inputs[1]);
    if (weights.quantizer || weights.payload.dtype() != ir::DType::f32) return rewrite::no_match();
    const ir::Shape& shape = weights.payload.shape();
    if (weights.payload.size() / std::max<std::int64_t>(1, shape[n.op == Op::conv ? 0 : 1]) > kMostProducts)
      return rewrite::no_match();
    for (const auto& [user, slot] : g.users(n.outputs[0])) {
      if (g.node(user).op == Op::affine) return rewrite::no_match();
    }
    std::vector<ir::ValueId> inputs = n.inputs;
    for (std::size_t slot = 1; slot < inputs.size(); ++slot) {
      if (inputs[slot] == ir::kNone || !g.is_constant(inputs[slot])) continue;
      if (auto kept = without_tiny(g.producer(inputs[slot])))
        inputs[slot] = g.add_constant(*std::move(kept), g.value(inputs[slot]).name);
    }
    if (inputs == n.inputs) return rewrite::no_match();
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
