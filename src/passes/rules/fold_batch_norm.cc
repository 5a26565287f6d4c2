// fold-batch-norm:  affine(conv(x, w, b), s, t) ==> conv(x, w * s[c], fma(b, s, t)), conv: also conv_transpose, gemm
//   Why    saves one multiply-add for each output element, and the two loads of its parameters.
//   Exact  not bit for bit. With u = 2^-24 and K products a sum, the result differs from the original by at most
//          2 (K + 2) u (sum |x w s| + |b s| + |t|): both orders of rounding keep within half of that of the real number.
//   Needs  nothing else reads the conv; w, b, s, t are plain f32 constants. Codes are never scaled: with coded weights the
//          normalization becomes part of the epilogue instead.
//   Order  after fold-constants (parameters must be literal).

#include <cmath>

#include "base/causes/passes.h"
#include "passes/rules.h"

namespace octavo::passes {
namespace {

using ir::Op;

std::size_t idx(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

bool plain_f32(const ir::Graph& g, ir::ValueId v) {
  return g.is_constant(v) && !g.producer(v).quantizer && g.payload(v).dtype() == ir::DType::f32;
}

/// Weights with each element multiplied by the scale of the output channel it contributes to.
ir::Tensor scaled(const ir::Tensor& w, std::span<const float> scale, Op op, std::int64_t group) {
  const ir::Shape& shape = w.shape();
  const std::int64_t axis = op == Op::conv ? 0 : 1;
  const std::int64_t inner = ir::dense_strides(shape)[idx(axis)], extent = shape[idx(axis)];
  const std::int64_t rows = op == Op::conv_transpose ? shape[0] / group : 1;  // input channels of one group
  ir::Tensor out(w.type());
  const auto from = w.data<float>();
  const auto to = out.mutable_data<float>();
  for (std::int64_t i = 0; i < w.size(); ++i) {
    std::int64_t channel = i / inner % extent;
    if (op == Op::conv_transpose) channel += i / (inner * extent) / rows * extent;
    to[idx(i)] = from[idx(i)] * scale[idx(channel)];
  }
  return out;
}

struct FoldBatchNorm final : rewrite::Rule {
  std::string_view name() const override { return "fold-batch-norm"; }
  std::string_view equation() const override { return "affine(conv(x, w, b), s, t) ==> conv(x, w * s, fma(b, s, t))"; }
  bool exact() const override { return false; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if (n.op != Op::affine) return rewrite::no_match();
    const ir::Node conv = g.producer(n.inputs[0]);  // copies: adding nodes moves the originals
    if (conv.op != Op::conv && conv.op != Op::conv_transpose && conv.op != Op::gemm) return rewrite::no_match();
    if (g.use_count(n.inputs[0]) != 1)
      return rewrite::refuse(because<cause::anchor_has_readers>(ir::name_of(conv.op), g.use_count(n.inputs[0])));
    if (g.is_constant(conv.inputs[1]) && g.producer(conv.inputs[1]).quantizer)
      return rewrite::refuse(because<cause::weights_are_codes>());
    if (!plain_f32(g, conv.inputs[1])) return rewrite::refuse(because<cause::weights_not_f32_constant>());
    if (!plain_f32(g, n.inputs[1]) || !plain_f32(g, n.inputs[2]))
      return rewrite::refuse(because<cause::scale_or_shift_not_constant>());
    const std::int64_t channels = g.type(n.outputs[0]).shape[1];
    const bool biased = conv.inputs.size() > 2 && conv.inputs[2] != ir::kNone;
    if (biased && !plain_f32(g, conv.inputs[2])) return rewrite::refuse(because<cause::bias_not_f32_constant>());
    if (biased && g.type(conv.inputs[2]).shape != ir::Shape{channels}) {
      return rewrite::refuse(because<cause::bias_not_per_channel>(ir::to_string(g.type(conv.inputs[2]).shape)));
    }

    const auto s = g.payload(n.inputs[1]).data<float>(), t = g.payload(n.inputs[2]).data<float>();
    ir::Tensor w = scaled(g.payload(conv.inputs[1]), s, conv.op, ir::get_int(conv.attrs, "group", 1));
    ir::Tensor b(ir::DType::f32, {channels});
    for (std::int64_t c = 0; c < channels; ++c) {
      const float before = biased ? g.payload(conv.inputs[2]).data<float>()[idx(c)] : 0.0F;
      b.mutable_data<float>()[idx(c)] = std::fma(before, s[idx(c)], t[idx(c)]);
    }
    const std::string weight_name = g.value(conv.inputs[1]).name, bias_name = g.value(n.inputs[2]).name;
    const ir::ValueId weights = g.add_constant(std::move(w), weight_name), bias = g.add_constant(std::move(b), bias_name);
    std::set<std::string> origin = conv.origin;
    origin.insert(n.origin.begin(), n.origin.end());
    const std::string result_name = g.value(n.outputs[0]).name;
    const ir::ValueId folded =
        g.add(conv.op, {conv.inputs[0], weights, bias}, g.type(n.outputs[0]), conv.attrs, std::move(origin), result_name);
    g.node(g.value(folded).producer).name = conv.name;
    g.value(folded).range = g.value(n.outputs[0]).range;
    g.replace_uses(n.outputs[0], folded);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& fold_batch_norm() {
  static const FoldBatchNorm rule;
  return rule;
}

}  // namespace octavo::passes
