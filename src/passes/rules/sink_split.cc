// sink-split:  reshape(f(reshape(x, a), c), shape of x) ==> f(x, c'), c constant
//   Why    attention in windows splits the batch from the windows to add a mask of each window to the scores, and merges them again. The sum was a
//          pass of its own between the product and softmax; on x it joins the product's region, and the three become one region of attention.
//   Exact  bit for bit: f computes each element from the same elements.
//   Needs  f is pointwise (no rounding to codes: laws move those, and no BatchNormalization: it names an axis); its other operands are constants;
//          the inner two have no other readers. A constant that is one for a part of a split dimension is repeated, up to 8 MiB.
//   Order  before merge-reshape, which would join the second reshape with what follows.
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "passes/behind_gemm.h"
#include "passes/rules.h"

namespace octavo::passes {
namespace {

using ir::Op;
using ir::Shape;

constexpr std::int64_t kMostBytes = std::int64_t{8} << 20;

/// Neighbouring dimensions of two shapes that have as many elements.
struct Group {
  std::size_t from = 0, to = 0;    ///< of the one
  std::size_t first = 0, end = 0;  ///< of the other
};

/// The finest groups of two shapes with as many elements, neither empty.
std::vector<Group> groups_of(const Shape& one, const Shape& other) {
  std::vector<Group> out;
  for (std::size_t i = 0, j = 0; i < one.size() || j < other.size();) {
    Group group{i, i, j, j};
    std::int64_t left = 1, right = 1;
    do {
      const bool takes_left =
          i < one.size() && (left < right || (left == right && (j == other.size() || one[i] == 1 || i == group.from)));
      if (takes_left) {
        left *= one[i++];
      } else {
        right *= other[j++];
      }
    } while (left != right);
    group.to = i, group.end = j;
    out.push_back(group);
  }
  return out;
}

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

/// `from` under numpy broadcasting in `shape`, which has as many dimensions or more.
ir::Tensor repeated(const ir::Tensor& from, const Shape& shape) {
  ir::Tensor out(from.dtype(), shape);
  const std::size_t size = ir::size_of(from.dtype()), missing = shape.size() - from.shape().size();
  const Shape strides = ir::dense_strides(from.shape());
  Shape at(shape.size(), 0);
  for (std::int64_t i = 0; i < out.size(); ++i) {
    std::int64_t place = 0;
    for (std::size_t d = missing; d < shape.size(); ++d) place += from.shape()[d - missing] == 1 ? 0 : at[d] * strides[d - missing];
    std::memcpy(out.mutable_bytes().data() + static_cast<std::size_t>(i) * size,
                from.bytes().data() + static_cast<std::size_t>(place) * size, size);
    for (std::size_t d = shape.size(); d-- > 0 && ++at[d] == shape[d];) at[d] = 0;
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
    std::vector<ir::ValueId> inputs;
    for (std::size_t k = 0; k < f.inputs.size(); ++k) {
      const ir::ValueId v = f.inputs[k];
      inputs.push_back(v == *computed ? x
                       : !spreads[k]  ? v
                                      : g.add_constant(repeated(g.payload(v), spreads[k]->repeated).reshaped(spreads[k]->shape),
                                                       g.value(v).name));
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
