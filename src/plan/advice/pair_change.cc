#include "plan/advice/pair_change.h"

#include <cmath>
#include <optional>

#include "ir/grid.h"
#include "plan/regions/group.h"
#include "quant/weight_scales.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;
using Kind = PairChange::Kind;

bool weighted(const Graph& g, const Node& n) {
  return (n.op == Op::conv || n.op == Op::conv_transpose || n.op == Op::gemm) && g.is_constant(n.inputs[1]);
}

/// Follows what a view's readers compute from it alone, to a value that a weighted operator reads.
class Follower {
 public:
  Follower(const Graph& g, NodeId view) : g_(g), view_(view) { seen_.insert(g.node(view).outputs[0]); }

  std::optional<PairChange> run() {
    std::vector<ValueId> open(seen_.begin(), seen_.end());
    PairChange found;
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (g_.output_uses(v) > 0) return std::nullopt;
      for (const auto& [user, slot] : g_.users(v)) {
        const Node& n = g_.node(user);
        if (weighted(g_, n) && slot == 0) {
          if (found.behind != ir::kNone && found.behind != v) return std::nullopt;
          found.behind = v;
          found.onnx_nodes.insert(n.origin.begin(), n.origin.end());
        } else if (n.op == Op::view || n.outputs.size() != 1 || !in_program(g_, n)) {
          return std::nullopt;
        } else if (complete(n) && seen_.insert(n.outputs[0]).second) {
          open.push_back(n.outputs[0]);
        }
      }
    }
    const ValueId start = g_.node(view_).outputs[0];
    if (found.behind == ir::kNone || found.behind == start || !only_weighted(found.behind) || !all_complete()) return std::nullopt;
    found.kind = Kind::move;
    return found;
  }

 private:
  bool complete(const Node& n) const {
    for (const ValueId in : n.inputs) {
      if (in != ir::kNone && !g_.is_constant(in) && !seen_.contains(in)) return false;
    }
    return true;
  }
  /// Nobody computes on from the values with something else beside them.
  bool all_complete() const {
    for (const ValueId v : seen_) {
      for (const auto& [user, slot] : g_.users(v)) {
        if (!weighted(g_, g_.node(user)) && !complete(g_.node(user))) return false;
      }
    }
    return true;
  }
  bool only_weighted(ValueId v) const {
    for (const auto& [user, slot] : g_.users(v)) {
      if (!weighted(g_, g_.node(user)) || slot != 0) return false;
    }
    return true;
  }

  const Graph& g_;
  NodeId view_;
  std::set<ValueId> seen_;
};

}  // namespace

std::vector<PairChange> find_pair_changes(const Graph& graph, const std::set<std::string, std::less<>>& disabled) {
  std::vector<PairChange> out;
  for (const NodeId id : graph.order()) {
    const Node& n = graph.node(id);
    if (n.op != Op::view || graph.is_constant(n.inputs[0])) continue;
    PairChange drop;
    drop.rounding.view = id;
    drop.rounding.tensor = graph.value(n.inputs[0]).name;
    drop.rounding.quantizer = *n.quantizer;
    drop.rounding.onnx_nodes = n.origin;
    if (auto move = Follower(graph, id).run()) {
      move->rounding = drop.rounding;
      out.push_back(std::move(*move));
    }
    out.push_back(std::move(drop));
  }
  for (Rounding& r : find_roundings(graph, disabled)) {
    if (r.kind == Rounding::Kind::left_out) out.push_back({Kind::share, std::move(r), ir::kNone, {}});
  }
  return out;
}

std::vector<PairChange> find_added_pairs(const Graph& graph, const ir::Ranges& ranges) {
  std::vector<PairChange> out;
  const ir::Grids grids = ir::find_grids(graph);
  for (const NodeId id : graph.order()) {
    const Node& n = graph.node(id);
    if (!weighted(graph, n) || graph.type(n.inputs[0]).dtype != ir::DType::f32 || ir::classify_anchor(graph, grids, id).integer)
      continue;
    const Node& w = graph.producer(n.inputs[1]);
    if (!w.quantizer && w.payload.dtype() != ir::DType::f32) continue;
    PairChange c;
    c.kind = Kind::add;
    c.node = id;
    c.rounding.tensor = graph.value(n.inputs[0]).name;
    c.rounding.onnx_nodes = n.origin;
    const auto range = ranges.find(c.rounding.tensor);
    c.in_range = range != ranges.end() && ir::is_range(range->second) && range->second.scale[0] > 0;
    c.rounding.quantizer = c.in_range ? range->second : ir::symmetric(1.0F / 64);
    out.push_back(std::move(c));
  }
  return out;
}

namespace {

/// The views of an added pair, on the data and on weights that are not quantized.
void add_pair(const Graph& graph, const PairChange& c, Graph& other) {
  const Node n = graph.node(c.node);
  const auto view_of = [&](ValueId v, const ir::Quantizer& q) {
    return other.add_quantizer(Op::view, v, q, other.type(v), n.origin);
  };
  const ValueId data = view_of(other.node(c.node).inputs[0], c.rounding.quantizer);
  other.node(c.node).inputs[0] = data;
  if (!graph.producer(n.inputs[1]).quantizer) {
    const ValueId coded = view_of(n.inputs[1], quant::weight_quantizer(graph, n));
    other.node(c.node).inputs[1] = coded;
  }
  other.touch();
}

}  // namespace

Graph changed(const Graph& graph, const std::vector<const PairChange*>& changes) {
  std::vector<const Rounding*> roundings;
  for (const PairChange* c : changes) {
    if (c->kind != Kind::add) roundings.push_back(&c->rounding);
  }
  Graph other = otherwise(graph, roundings);
  for (const PairChange* c : changes) {
    if (c->kind == Kind::add) add_pair(graph, *c, other);
    if (c->kind != Kind::move) continue;
    const Node& old = graph.node(c->rounding.view);
    const std::vector<std::pair<NodeId, int>> users = other.users(c->behind);
    const ValueId view = other.add_quantizer(Op::view, c->behind, *old.quantizer, other.type(c->behind), old.origin);
    for (const auto& [user, slot] : users) other.node(user).inputs[static_cast<std::size_t>(slot)] = view;
    other.touch();
  }
  return other;
}

}  // namespace octavo::plan
