#include "plan/candidates/cut.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>

#include "base/causes/plan_candidates.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::Tensor;
using ir::ValueId;

Tensor cut(const Tensor& t, std::size_t axis, Range range) {
  ir::Shape dims = t.shape();
  dims[axis] = range.second - range.first;
  Tensor out(t.dtype(), dims);
  std::int64_t outer = 1;
  for (std::size_t d = 0; d < axis; ++d) outer *= dims[d];
  const std::int64_t row = outer == 0 ? 0 : static_cast<std::int64_t>(t.bytes().size()) / outer, step = row / t.shape()[axis];
  for (std::int64_t o = 0; o < outer; ++o) {
    std::memcpy(out.mutable_bytes().data() + o * step * dims[axis], t.bytes().data() + o * row + range.first * step,
                static_cast<std::size_t>(step * dims[axis]));
  }
  return out;
}

}  // namespace

std::optional<ir::Quantizer> cut(std::optional<ir::Quantizer> q, std::size_t axis, Range range) {
  if (!q || q->per_tensor() || q->axis != static_cast<std::int64_t>(axis)) return q;
  q->scale = {q->scale.begin() + range.first, q->scale.begin() + range.second};
  q->zero_point = {q->zero_point.begin() + range.first, q->zero_point.begin() + range.second};
  return q;
}

ValueId cut_constant(Graph& g, ValueId v, std::size_t axis, Range range) {
  if (v == ir::kNone) return v;
  const Node n = g.producer(v);
  const std::string name = g.value(v).name;
  return g.add_constant(cut(n.payload, axis, range), name, cut(n.quantizer, axis, range));
}

ValueId add_part(Graph& g, Node n, ValueId whole, ir::TensorType type) {
  n.outputs.clear();
  const ir::NodeId id = g.add_node(std::move(n), {std::move(type)}, {g.value(whole).name});
  const ValueId part = g.node(id).outputs[0];
  g.value(part).range = g.value(whole).range;
  return part;
}

std::optional<Reason> why_not_in_parts(const Graph& g, const ir::Grids& grids, ir::NodeId anchor) {
  if (!ir::classify_anchor(g, grids, anchor).integer) return because<cause::anchor_not_integer>();
  const std::vector<ValueId>& inputs = g.node(anchor).inputs;
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i] != ir::kNone && !g.is_constant(inputs[i])) return because<cause::weights_or_bias_computed>();
  }
  return std::nullopt;
}

std::optional<Reason> why_not_apart(const std::set<Range>& parts) {
  constexpr std::size_t kMostParts = 4;
  if (parts.size() > kMostParts) return because<cause::too_many_parts>(parts.size());
  for (auto it = parts.begin(); it != parts.end() && std::next(it) != parts.end(); ++it) {
    const auto next = std::next(it);
    if (next->first < it->second) return because<cause::parts_overlap>(next->first, std::min(it->second, next->second) - 1);
  }
  return std::nullopt;
}

}  // namespace octavo::plan
