// fuse-layer-norm:  add(mul(div(c, sqrt(add(mean(c * c), e))), s), b) ==> layer_norm(x, s, b) {epsilon=e}, c = sub(x, mean(x))
//   Why    exporters spell LayerNormalization out: four passes over the data where one region computes it row by row.
//   Exact  not bit for bit. With u = 2^-24 and n elements a mean, y differs by at most (n + 10) u (|(y - b)| + |b|): mean and centred values are
//          the same; sums of squares are n roundings apart at most, of which the root halves the effect; then the reciprocal, and one fma.
//   Needs  both means run over the same last dimensions, kept with extent 1; x is f32; e is one number; s and b are plain f32 constants that
//          broadcast to the reduced dimensions (each may be absent; without s it is ones); nothing else reads what lies between. Also with
//          pow(c, 2) as the square, and with a product by the reciprocal in the place of the quotient.
//   Order  after merge-reshape and fold-constants. The outermost operator of the pattern is the one that is replaced.
#include <algorithm>
#include <optional>

#include "base/causes/passes.h"
#include "passes/rules.h"

namespace octavo::passes {
namespace {

using ir::Op;
using ir::Shape;
using ir::ValueId;

/// The f32 constant `v` as an operand of the dimensions `inner` alone: without leading ones. Nothing where it does not broadcast to them.
std::optional<Shape> inner_shape(const ir::Graph& g, ValueId v, const Shape& inner) {
  if (!g.is_constant(v) || g.producer(v).quantizer || g.payload(v).dtype() != ir::DType::f32) return std::nullopt;
  Shape s = g.type(v).shape;
  while (s.size() > inner.size() && s.front() == 1) s.erase(s.begin());
  if (s.size() > inner.size()) return std::nullopt;
  for (std::size_t d = 0; d < s.size(); ++d) {
    if (s[d] != 1 && s[d] != inner[inner.size() - s.size() + d]) return std::nullopt;
  }
  return s;
}

std::optional<float> number(const ir::Graph& g, ValueId v) {
  if (!g.is_constant(v) || g.producer(v).quantizer || g.payload(v).dtype() != ir::DType::f32 || g.payload(v).size() != 1)
    return std::nullopt;
  return g.payload(v).data<float>()[0];
}

/// x, if v is its mean over the dimensions from `axis` on, which stay with extent 1.
ValueId mean_of(const ir::Graph& g, ValueId v, std::int64_t& axis) {
  const ir::Node& n = g.producer(v);
  if (n.op != Op::reduce_mean || ir::get_int(n.attrs, "keepdims", 1) != 1) return ir::kNone;
  const auto axes = ir::get_ints(n.attrs, "axes");
  const auto rank = static_cast<std::int64_t>(g.type(n.inputs[0]).shape.size());
  if (axes.empty() || axes.back() != rank - 1 || axes.back() - axes.front() + 1 != static_cast<std::int64_t>(axes.size()))
    return ir::kNone;
  axis = axes.front();
  return n.inputs[0];
}

/// What is computed without scale and bias, and how often its centred values are read inside.
struct Core {
  ValueId x = ir::kNone, centred = ir::kNone;
  std::int64_t axis = 0;
  float epsilon = 0;
  std::vector<ValueId> between;  ///< read once each, but for the centred values
  int reads = 0;                 ///< of the centred values
};

/// sqrt(mean(c * c) + e) of v; c and the rest into `core`.
bool root(const ir::Graph& g, ValueId v, Core& core) {
  if (g.producer(v).op != Op::sqrt) return false;
  const ValueId sum = g.producer(v).inputs[0];
  if (g.producer(sum).op != Op::add) return false;
  const auto& terms = g.producer(sum).inputs;
  for (const std::size_t side : {0U, 1U}) {
    const auto e = number(g, terms[side]);
    std::int64_t axis = 0;
    const ValueId square = e ? mean_of(g, terms[1 - side], axis) : ir::kNone;
    if (square == ir::kNone) continue;
    const ir::Node& s = g.producer(square);
    const bool product = s.op == Op::mul && s.inputs[0] == s.inputs[1];
    if (!product && !(s.op == Op::pow && number(g, s.inputs[1]) == 2.0F)) continue;
    const ir::Node& c = g.producer(s.inputs[0]);
    std::int64_t same = -1;
    if (c.op != Op::sub || mean_of(g, c.inputs[1], same) != c.inputs[0] || same != axis) continue;
    core.x = c.inputs[0], core.centred = s.inputs[0], core.axis = axis, core.epsilon = *e;
    core.reads = product ? 2 : 1;
    core.between = {v, sum, terms[1 - side], square, c.inputs[1]};
    return true;
  }
  return false;
}

/// c / root, c * reciprocal(root) or c * (1 / root).
std::optional<Core> core_of(const ir::Graph& g, ValueId v) {
  const ir::Node& n = g.producer(v);
  Core core;
  if (n.op == Op::div && root(g, n.inputs[1], core) && n.inputs[0] == core.centred) {
    ++core.reads;
    return core;
  }
  if (n.op != Op::mul) return std::nullopt;
  for (const std::size_t side : {0U, 1U}) {
    const ir::Node& r = g.producer(n.inputs[side]);
    const bool one_over = r.op == Op::div && number(g, r.inputs[0]) == 1.0F;
    if (r.op != Op::reciprocal && !one_over) continue;
    if (!root(g, r.inputs[one_over ? 1 : 0], core) || n.inputs[1 - side] != core.centred) continue;
    core.between.push_back(n.inputs[side]);
    ++core.reads;
    return core;
  }
  return std::nullopt;
}

struct Match {
  Core core;
  ValueId scale = ir::kNone, bias = ir::kNone;
};

Shape inner_of(const ir::Graph& g, const Core& core) {
  const Shape& x = g.type(core.x).shape;
  return {x.begin() + core.axis, x.end()};
}

/// The pattern whose result is v, with as much of scale and bias as there is.
std::optional<Match> match(const ir::Graph& g, ValueId v) {
  if (auto core = core_of(g, v)) return Match{std::move(*core)};
  for (const Op op : {Op::mul, Op::add}) {
    const ir::Node& n = g.producer(v);
    for (std::size_t side = 0; n.op == op && side < 2; ++side) {
      const ValueId value = n.inputs[side], constant = n.inputs[1 - side];
      if (!g.is_constant(constant) || g.is_constant(value)) continue;
      auto m = op == Op::mul ? std::nullopt : match(g, value);
      if (auto core = m ? std::nullopt : core_of(g, value)) m = Match{std::move(*core)};
      if (!m || m->bias != ir::kNone || !inner_shape(g, constant, inner_of(g, m->core)) ||
          g.type(v).shape != g.type(m->core.x).shape)
        continue;
      (op == Op::mul ? m->scale : m->bias) = constant;
      m->core.between.push_back(value);
      return m;
    }
  }
  return std::nullopt;
}

struct FuseLayerNorm final : rewrite::Rule {
  std::string_view name() const override { return "fuse-layer-norm"; }
  std::string_view equation() const override {
    return "add(mul(div(c, sqrt(add(mean(c * c), e))), s), b) ==> layer_norm(x, s, b) {epsilon=e}, c = sub(x, mean(x))";
  }
  bool exact() const override { return false; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if (n.op != Op::div && n.op != Op::mul && n.op != Op::add) return rewrite::no_match();
    const ValueId y = n.outputs[0];
    const auto m = match(g, y);
    if (!m || g.type(m->core.x).dtype != ir::DType::f32) return rewrite::no_match();
    if (m->bias == ir::kNone && g.use_count(y) == 1 && g.users(y).size() == 1) {  // a larger pattern ends at the reader
      const ir::Node& reader = g.node(g.users(y)[0].first);
      if ((reader.op == Op::mul || reader.op == Op::add) && match(g, reader.outputs[0])) return rewrite::no_match();
    }
    for (const ValueId v : m->core.between) {
      if (g.use_count(v) != 1)
        return rewrite::refuse(because<cause::anchor_has_readers>(ir::name_of(g.producer(v).op), g.use_count(v)));
    }
    if (g.use_count(m->core.centred) != m->core.reads)
      return rewrite::refuse(
          because<cause::anchor_has_readers>(ir::name_of(Op::sub), g.use_count(m->core.centred) - m->core.reads + 1));

    const Shape inner = inner_of(g, m->core);
    const auto parameter = [&](ValueId v) {
      const Shape shape = *inner_shape(g, v, inner);
      if (g.type(v).shape == shape) return v;
      ir::Tensor t(ir::DType::f32, shape);
      std::ranges::copy(g.payload(v).data<float>(), t.mutable_data<float>().begin());
      const std::string of = g.value(v).name;
      return g.add_constant(std::move(t), of);
    };
    ValueId scale = m->scale;
    if (scale != ir::kNone) {
      scale = parameter(scale);
    } else {
      ir::Tensor ones(ir::DType::f32, {inner.back()});
      std::ranges::fill(ones.mutable_data<float>(), 1.0F);
      scale = g.add_constant(std::move(ones));
    }
    std::vector<ValueId> inputs{m->core.x, scale};
    if (m->bias != ir::kNone) inputs.push_back(parameter(m->bias));
    std::set<std::string> origin = n.origin;
    for (const ValueId v : m->core.between) origin.insert(g.producer(v).origin.begin(), g.producer(v).origin.end());
    origin.insert(g.producer(m->core.centred).origin.begin(), g.producer(m->core.centred).origin.end());
    const std::string result_name = g.value(y).name;
    const ValueId fused =
        ir::add_inferred(g, Op::layer_norm, inputs, {{"axis", m->core.axis}, {"epsilon", static_cast<double>(m->core.epsilon)}},
                         std::move(origin), result_name);
    g.value(fused).range = g.value(y).range;
    g.replace_uses(y, fused);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& fuse_layer_norm() {
  static const FuseLayerNorm rule;
  return rule;
}

}  // namespace octavo::passes
