#include "plan/precision/permit_pairs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;
using Why = PermittedPairs::Kept::Why;

/// What a pair or a view rounds; kNone for nodes that are neither.
ValueId rounded_by(const Graph& g, const Node& n) {
  if (n.op == ir::Op::view) return n.inputs[0];
  if (n.op != ir::Op::dequantize) return ir::kNone;
  const Node& codes = g.producer(n.inputs[0]);
  return codes.op == ir::Op::quantize && codes.quantizer == n.quantizer ? codes.inputs[0] : ir::kNone;
}

std::optional<Why> why_kept(const Graph& g, ValueId x, const ir::Quantizer& q) {
  if (!q.per_tensor()) return Why::channels;
  if (q.arith != ir::DType::f32 || g.type(x).dtype != ir::DType::f32 || !ir::is_int8(q.type)) return Why::type;
  return std::nullopt;
}

/// Equal quantizers spelled alike: s8 around 0 as tables say it, everything else as u8.
ir::Quantizer spelled(const ir::Quantizer& q) {
  const ir::Quantizer s = ir::as_s8(q);
  return s.zero_point[0] == 0 ? s : ir::as_u8(q);
}

/// What the operators say of values below 0. A network input counts as if it had none: no Relu was left out in front of it.
class Signs {
 public:
  explicit Signs(const Graph& g) : g_(g) {}

  bool never_negative(ValueId v) {
    const auto [at, fresh] = known_.try_emplace(v, false);
    if (!fresh) return at->second;
    const bool answer = of(g_.producer(v));
    return known_[v] = answer;
  }

 private:
  bool of(const Node& n) {
    const auto operand = [&](ValueId in) { return never_negative(in); };
    switch (n.op) {
      case ir::Op::input:
      case ir::Op::relu:
      case ir::Op::sigmoid:
      case ir::Op::hard_sigmoid:
      case ir::Op::softmax:
      case ir::Op::softplus:
      case ir::Op::abs:
      case ir::Op::exp: return true;
      case ir::Op::clip: return ir::get_float(n.attrs, "min", -INFINITY) >= 0;
      case ir::Op::max: return std::any_of(n.inputs.begin(), n.inputs.end(), operand);
      case ir::Op::add:
      case ir::Op::mul:
      case ir::Op::min:
      case ir::Op::concat: return std::all_of(n.inputs.begin(), n.inputs.end(), operand);
      case ir::Op::view:
      case ir::Op::dequantize: return n.quantizer->per_tensor() && ir::as_u8(*n.quantizer).zero_point[0] == 0;
      case ir::Op::avg_pool:
      case ir::Op::reduce_mean:
      case ir::Op::resize_linear: return operand(n.inputs[0]);
      case ir::Op::pad: return ir::get_float(n.attrs, "value") >= 0 && operand(n.inputs[0]);
      default: return ir::has_trait(n.op, ir::kMove) && operand(n.inputs[0]);
    }
  }

  const Graph& g_;
  std::map<ValueId, bool> known_;
};

}  // namespace

PermittedPairs permit_pairs(Graph& g) {
  PermittedPairs out;
  std::map<ValueId, std::vector<NodeId>> pairs;  // by the value that they read
  std::vector<ValueId> order;
  const auto keep = [&](ValueId x, Why why) { out.kept.push_back({g.value(x).name, why}); };
  for (const NodeId id : g.order()) {
    const Node& n = g.node(id);
    const ValueId x = rounded_by(g, n);
    if (x == ir::kNone || g.is_constant(x)) continue;
    if (const auto why = why_kept(g, x, *n.quantizer)) {
      keep(x, *why);
      continue;
    }
    if (pairs[x].empty()) order.push_back(x);
    pairs[x].push_back(id);
  }
  Signs signs(g);
  std::map<ValueId, ValueId> behind;  // result of a pair that is gone -> the value that is read instead
  for (const ValueId v : order) {
    const std::vector<NodeId>& readers = pairs[v];
    const auto range_of = [&](NodeId id) { return spelled(*g.node(id).quantizer); };
    const ir::Quantizer q = range_of(readers[0]);
    if (std::any_of(readers.begin(), readers.end(), [&](NodeId id) { return range_of(id) != q; })) {
      keep(v, Why::other_scale);
      continue;
    }
    const auto pair_before = behind.find(v);
    ValueId base = pair_before == behind.end() ? v : pair_before->second;
    if (q.type == ir::DType::u8 && q.zero_point[0] == 0 && !signs.never_negative(base)) {
      const auto largest = static_cast<double>(255 * q.scale[0]);
      const std::string name = g.value(base).name;
      base = g.add(ir::Op::clip, {base}, g.type(base), {{"min", 0.0}, {"max", largest}}, g.producer(base).origin,
                   name + " (at least 0)");
    }
    std::optional<ir::Quantizer>& range = g.value(base).range;
    range = !range || (pair_before == behind.end() && base == v) ? range.value_or(q) : ir::wider(*range, q);
    for (const NodeId id : readers) {
      const ValueId result = g.node(id).outputs[0];
      behind[result] = base;
      g.replace_uses(result, base, false);
      ++out.taken;
    }
  }
  g.remove_dead();
  return out;
}

}  // namespace octavo::plan
