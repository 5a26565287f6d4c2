// conv-transpose-as-conv:  conv_transpose(x, w, b), windows side by side ==> depth_to_space(conv(x, w', b')), w'[o s s + i s + j] = w[o, i, j]
//   Why    kernels compute output channels in the lanes of a vector. With one output channel, such as the mask of a text detector,
//          one lane of sixteen works, four times. As a convolution, the s s taps are output channels, and the operators behind it
//          run over rows of the result.
//   Exact  bit for bit: each element of the result is the sum of the same products, over the input channels in their order.
//   Needs  two spatial dimensions, one group, strides as long as a square kernel, no padding; s s times the output channels fit one vector of 16;
//          w and b are plain f32 constants.
//   Order  after fold-batch-norm, which looks for a conv_transpose.
#include <algorithm>

#include "passes/rules.h"

namespace octavo::passes {
namespace {

using ir::Op;
using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kMostChannels = 16;

bool plain_f32(const ir::Graph& g, ir::ValueId v) {
  return g.is_constant(v) && !g.producer(v).quantizer && g.payload(v).dtype() == ir::DType::f32;
}

struct ConvTransposeAsConv final : rewrite::Rule {
  std::string_view name() const override { return "conv-transpose-as-conv"; }
  std::string_view equation() const override {
    return "conv_transpose(x, w, b), windows side by side ==> depth_to_space(conv(x, w', b')), w'[o s s + i s + j] = w[o, i, j]";
  }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if (n.op != Op::conv_transpose || !plain_f32(g, n.inputs[1])) return rewrite::no_match();
    const bool biased = n.inputs.size() > 2 && n.inputs[2] != ir::kNone;
    if (biased && !plain_f32(g, n.inputs[2])) return rewrite::no_match();
    const ir::Shape w = g.type(n.inputs[1]).shape, x = g.type(n.inputs[0]).shape, y = g.type(n.outputs[0]).shape;
    if (w.size() != 4 || w[2] != w[3] || w[2] < 2 || ir::get_int(n.attrs, "group", 1) != 1) return rewrite::no_match();
    const std::int64_t in = w[0], out = w[1], s = w[2], taps = s * s;
    const auto all = [&](const char* key, std::int64_t value) {
      const Ints given = ir::get_ints(n.attrs, key);
      return std::all_of(given.begin(), given.end(), [&](std::int64_t v) { return v == value; });
    };
    if (ir::get_ints(n.attrs, "strides") != Ints{s, s} || !all("pads", 0) || !all("dilations", 1) || !all("output_padding", 0) ||
        out * taps > kMostChannels || y != ir::Shape{x[0], out, x[2] * s, x[3] * s})
      return rewrite::no_match();
    for (const auto& [user, slot] : g.users(n.outputs[0])) {
      if (g.node(user).op == Op::affine) return rewrite::no_match();
    }
    const auto from = g.payload(n.inputs[1]).data<float>();
    ir::Tensor weights(ir::DType::f32, {out * taps, in, 1, 1});
    const auto to = weights.mutable_data<float>();
    for (std::int64_t c = 0; c < in; ++c) {
      for (std::int64_t k = 0; k < out * taps; ++k)
        to[static_cast<std::size_t>(k * in + c)] = from[static_cast<std::size_t>(c * out * taps + k)];
    }
    std::vector<ir::ValueId> inputs{n.inputs[0], g.add_constant(std::move(weights), g.value(n.inputs[1]).name)};
    if (biased) {
      ir::Tensor bias(ir::DType::f32, {out * taps});
      for (std::int64_t k = 0; k < out * taps; ++k)
        bias.mutable_data<float>()[static_cast<std::size_t>(k)] =
            g.payload(n.inputs[2]).data<float>()[static_cast<std::size_t>(k / taps)];
      inputs.push_back(g.add_constant(std::move(bias), g.value(n.inputs[2]).name));
    }
    const ir::Attrs attrs{
        {"strides", Ints{1, 1}}, {"pads", Ints{0, 0, 0, 0}}, {"dilations", Ints{1, 1}}, {"group", std::int64_t{1}}};
    const ir::ValueId conv = ir::add_inferred(g, Op::conv, inputs, attrs, n.origin);
    g.node(g.value(conv).producer).name = n.name;
    const ir::ValueId spread = ir::add_inferred(g, Op::depth_to_space, {conv}, {{"blocksize", s}, {"mode", std::string("CRD")}},
                                                n.origin, g.value(n.outputs[0]).name);
    g.value(conv).range = g.value(spread).range = g.value(n.outputs[0]).range;
    g.replace_uses(n.outputs[0], spread);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& conv_transpose_as_conv() {
  static const ConvTransposeAsConv rule;
  return rule;
}

}  // namespace octavo::passes
