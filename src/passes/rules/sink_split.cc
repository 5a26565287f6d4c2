// sink-split:  reshape(f(reshape(x, a), c), shape of x) ==> f(x, c'), c constant
//   Why    attention in windows splits the batch from the windows to add a mask of each window to the scores, and merges them again. The sum was a
//          pass of its own between the product and softmax; on x it joins the product's region, and the three become one region of attention.
//   Exact  bit for bit: f computes each element from the same elements.
//   Needs  f is pointwise (no rounding to codes: laws move those, and no BatchNormalization: it names an axis); its other operands are constants;
//          the inner two have no other readers. A constant that is one for a part of a split dimension is repeated, up to 8 MiB.
//   Order  before merge-reshape, which would join the second reshape with what follows.
#include <algorithm>
#include <optional>
#include <vector>

#include "base/causes/quant.h"
#include "passes/behind_gemm.h"
#include "passes/rules.h"
#include "passes/shape_groups.h"
#include "reference/evaluate.h"

namespace octavo::passes {
namespace {

using ir::Op;
using ir::Shape;

constexpr std::int64_t kMostBytes = std::int64_t{8} << 20;

/// The constant as an operand of x: of the shape of x, with 1 where it is one for all.
struct Spread {
  Shape repeated;  ///< its shape, with as many dimensions as the split one
  Shape shape;     ///< the same elements, with as many dimensions as x
};
std::optional<Spread> spread_of(const Shape& constant, const Shape& split, const Shape& x) {
  if (constant.size() > split.size()) return std::nullopt;
  Shape own(split.size() - constant.size(), 1);
  own.insert(own.end(), constant.begin(), constant.end());
  Spread out{own, Shape(x.size(), 1)};
  for (const Group& group : groups_of(x, split)) {
    bool differs = false;
    for (std::size_t d = group.first; d < group.end; ++d) differs = differs || own[d] != 1;
    if (!differs) continue;
    for (std::size_t d = group.first; d < group.end; ++d) out.repeated[d] = split[d];
    for (std::size_t d = group.from; d < group.to; ++d) out.shape[d] = x[d];
  }
  return out;
}

struct SinkSplit final : rewrite::Rule {
  std::string_view name() const override { return "sink-split"; }
  std::string_view equation() const override { return "reshape(f(reshape(x, a), c), shape of x) ==> f(x, c'), c constant"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if (n.op != Op::reshape || g.use_count(n.inputs[0]) != 1) return rewrite::no_match();
    const ir::Node f = g.producer(n.inputs[0]);
    const Shape split = g.type(n.inputs[0]).shape, shape = g.type(n.outputs[0]).shape;
    if (!moves_freely(f.op) || f.outputs.size() != 1 || ir::count(shape) == 0) return rewrite::no_match();
    const auto computed =
        std::find_if(f.inputs.begin(), f.inputs.end(), [&](ir::ValueId v) { return v != ir::kNone && !g.is_constant(v); });
    if (computed == f.inputs.end() || f.inputs.size() < 2 || g.producer(*computed).op != Op::reshape ||
        g.use_count(*computed) != 1 || g.type(*computed).shape != split)
      return rewrite::no_match();
    const ir::ValueId x = g.producer(*computed).inputs[0];
    if (g.type(x).shape != shape) return rewrite::no_match();
    std::vector<std::optional<Spread>> spreads;
    for (const ir::ValueId v : f.inputs) {
      spreads.emplace_back();
      if (v == *computed || v == ir::kNone) continue;
      if (!g.is_constant(v) || g.producer(v).quantizer) return rewrite::no_match();
      spreads.back() = spread_of(g.type(v).shape, split, shape);
      if (!spreads.back()) return rewrite::no_match();
      const Shape& made = spreads.back()->repeated;
      if (ir::count(made) != ir::count(g.type(v).shape) &&
          ir::count(made) * static_cast<std::int64_t>(ir::size_of(g.type(v).dtype)) > kMostBytes)
        return rewrite::no_match();
    }
    std::vector<ir::ValueId> inputs = f.inputs;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      if (inputs[k] == *computed) inputs[k] = x;
      if (!spreads[k]) continue;
      const ir::ValueId whole = ir::add_inferred(g, Op::expand, {inputs[k]}, {{"shape", spreads[k]->repeated}});
      const ir::ValueId spread = ir::add_inferred(g, Op::reshape, {whole}, {{"shape", spreads[k]->shape}});
      auto made = reference::evaluate_between(g, {}, {spread});
      if (!made) return rewrite::refuse(because<cause::not_evaluated>(made.error().message));
      inputs[k] = g.add_constant(std::move(made->front()), g.value(inputs[k]).name);
    }
    std::set<std::string> origin = f.origin;
    origin.insert(n.origin.begin(), n.origin.end());
    origin.insert(g.producer(*computed).origin.begin(), g.producer(*computed).origin.end());
    const ir::ValueId y = ir::add_inferred(g, f.op, inputs, f.attrs, origin, g.value(n.outputs[0]).name);
    g.node(g.value(y).producer).name = f.name;
    g.value(y).range = g.value(n.outputs[0]).range ? g.value(n.outputs[0]).range : g.value(n.inputs[0]).range;
    g.replace_uses(n.outputs[0], y);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& sink_split() {
  static const SinkSplit rule;
  return rule;
}

}  // namespace octavo::passes
