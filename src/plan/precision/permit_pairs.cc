#include "plan/precision/permit_pairs.h"

#include <algorithm>
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
  if (ir::as_s8(q).zero_point[0] != 0) return Why::zero_point;
  return std::nullopt;
}

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
  std::map<ValueId, ValueId> behind;  // result of a pair that is gone -> the value that is read instead
  for (const ValueId v : order) {
    const std::vector<NodeId>& readers = pairs[v];
    const auto scale_of = [&](NodeId id) { return g.node(id).quantizer->scale[0]; };
    const float scale = scale_of(readers[0]);
    if (std::any_of(readers.begin(), readers.end(), [&](NodeId id) { return scale_of(id) != scale; })) {
      keep(v, Why::other_scale);
      continue;
    }
    const auto pair_before = behind.find(v);
    const ValueId base = pair_before == behind.end() ? v : pair_before->second;
    std::optional<float>& range = g.value(base).range;
    range = pair_before == behind.end() ? range.value_or(scale) : std::max(*range, scale);
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
