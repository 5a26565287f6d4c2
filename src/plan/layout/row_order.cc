#include "plan/layout/row_order.h"

#include <algorithm>

#include "plan/regions/group.h"
#include "region/tensor_ref.h"

namespace octavo::plan {
namespace {

using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;
using region::TensorRef;

bool keeps_places(const Node& n) {
  return n.op == Op::view || n.op == Op::softmax || n.op == Op::layer_norm || ir::has_trait(n.op, ir::kPointwise);
}

}  // namespace

std::map<ValueId, Strides> find_row_orders(const ir::Graph& g) {
  std::map<ValueId, Strides> wanted;
  const auto wish = [&](ValueId v, const Strides& strides) {
    if (v == ir::kNone || g.is_constant(v)) return;
    const ir::Shape& dims = g.type(v).shape;
    std::vector<int> order = order_of(dims, strides);  // dimensions of one element have any stride: they go first
    std::stable_partition(order.begin(), order.end(), [&](int d) { return dims[static_cast<std::size_t>(d)] == 1; });
    wanted.emplace(v, strides_in_order(dims, order));
  };
  const std::vector<NodeId> order = g.order();
  for (std::size_t i = order.size(); i-- > 0;) {  // readers first
    const Node& n = g.node(order[i]);
    if (n.op == Op::gemm) wish(n.inputs[0], ir::dense_strides(g.type(n.inputs[0]).shape));
    const auto found = wanted.find(n.outputs[0]);
    if (found == wanted.end()) continue;
    TensorRef want;
    want.dims = g.type(n.outputs[0]).shape, want.strides = found->second;
    const auto same_order = [&](ValueId v) {
      const ir::Shape& dims = g.type(v).shape;
      if (dims.size() == want.dims.size()) wish(v, strides_in_order(dims, order_of(want.dims, want.strides)));
    };
    if (n.op == Op::transpose) {
      wish(n.inputs[0], unpermuted(want, ir::get_ints(n.attrs, "perm")).strides);
    } else if (n.op == Op::reshape) {
      if (const auto source = reshaped(want, g.type(n.inputs[0]).shape)) wish(n.inputs[0], source->strides);
    } else if (n.op == Op::slice || n.op == Op::concat) {
      for (const ValueId v : n.inputs) same_order(v);
    } else if (keeps_places(n)) {
      for (const ValueId v : n.inputs) {
        if (v != ir::kNone && g.type(v).shape == want.dims) wish(v, want.strides);
      }
    }
  }
  return wanted;
}

std::set<ValueId> find_features_last(const ir::Graph& g) {
  std::set<ValueId> out;
  for (const NodeId id : g.order()) {
    const Node& n = g.node(id);
    const ValueId v = n.outputs[0];
    const ir::Shape& dims = g.type(v).shape;
    if (dims.empty()) continue;
    const auto rank = static_cast<std::int64_t>(dims.size());
    const auto has = [&](ValueId in) { return in != ir::kNone && out.contains(in); };
    // A reshape that leaves the last dimension in one piece, splits it, or merges it with those in front of it.
    const auto keeps_last = [&](ValueId in) {
      const std::int64_t from = g.type(in).shape.back(), to = dims.back();
      return from > 0 && to > 0 && (from % to == 0 || to % from == 0);
    };
    bool last = false;
    switch (n.op) {
      case Op::gemm: last = true; break;
      case Op::layer_norm: last = ir::get_int(n.attrs, "axis") == rank - 1; break;
      case Op::reshape: last = has(n.inputs[0]) && keeps_last(n.inputs[0]); break;
      case Op::transpose: last = has(n.inputs[0]) && ir::get_ints(n.attrs, "perm").back() == rank - 1; break;
      case Op::slice: last = has(n.inputs[0]); break;
      case Op::concat: last = std::all_of(n.inputs.begin(), n.inputs.end(), has); break;
      default:
        last = keeps_places(n) &&
               std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueId in) { return has(in) && g.type(in).shape == dims; });
    }
    if (last) out.insert(v);
  }
  return out;
}

std::vector<std::set<ValueId>> connected(const ir::Graph& g, const std::set<ValueId>& values) {
  // What a value is made from, and what is moved from it, belongs to its set. Sources come first in the order.
  std::map<ValueId, std::size_t> set_of;
  std::vector<std::set<ValueId>> sets;
  for (const NodeId id : g.order()) {
    const Node& n = g.node(id);
    const ValueId v = n.outputs[0];
    const bool own = values.contains(v), passes = is_alias(n) || keeps_places(n);
    if (!own && !passes) continue;
    std::set<std::size_t> found;
    for (const ValueId in : passes ? n.inputs : std::vector<ValueId>{}) {
      if (const auto at = set_of.find(in); at != set_of.end()) found.insert(at->second);
    }
    if (found.empty() && !own) continue;
    if (found.empty()) found.insert(sets.size()), sets.emplace_back();
    const std::size_t to = *found.begin();
    for (auto& [value, set] : set_of) {
      if (found.contains(set)) set = to;
    }
    for (const std::size_t other : found) {
      if (other != to) sets[to].merge(sets[other]);
    }
    set_of[v] = to;
    if (own) sets[to].insert(v);
  }
  std::erase_if(sets, [](const auto& s) { return s.empty(); });
  return sets;
}

}  // namespace octavo::plan
