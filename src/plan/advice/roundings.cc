#include "plan/advice/roundings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "ir/grid.h"
#include "plan/candidates/above_moves.h"
#include "plan/layout/place.h"
#include "plan/regions/group.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;

class Finder {
 public:
  Finder(const Graph& g, const std::set<std::string, std::less<>>& disabled, bool in_front)
      : g_(g), grids_(ir::find_grids(g)), grouping_(make_groups(g, disabled)), in_front_(in_front) {
    for (const auto& [key, count] : find_requests(g, grids_, grouping_)) {
      stored_.insert(key.first);
      if (key.second == Repr::codes) codes_.insert(key.first);
    }
  }

  std::vector<Rounding> run() {
    std::vector<Rounding> out;
    for (const NodeId id : g_.order()) {
      const Node& n = g_.node(id);
      const int group = group_of(id);
      if (std::optional<Rounding> r = left_out(id)) out.push_back(std::move(*r));
      if (n.op != Op::view || group < 0 || reaches_store(n.outputs[0], group)) continue;
      Rounding r;
      r.view = id;
      r.tensor = named(n.inputs[0]);
      r.quantizer = *n.quantizer;
      r.onnx_nodes = n.origin;
      r.source = ir::name_of(g_.producer(n.inputs[0]).op);
      for (const auto& [user, slot] : g_.users(n.outputs[0])) r.readers.insert(reader(g_.node(user)));
      add_group(r.around, group, id);
      out.push_back(std::move(r));
    }
    return out;
  }

 private:
  /// The first reader's view of `id`'s tensor, if it is one whose codes are stored while other regions read the tensor in float32.
  std::optional<Rounding> left_out(NodeId id) const {
    const Node& view = g_.node(id);
    if (view.op != Op::view || group_of(id) < 0) return std::nullopt;
    const ValueId v = view.inputs[0];
    if (g_.is_constant(v) || g_.output_uses(v) > 0 || !stores_codes(id) || stored_in_parts(v)) return std::nullopt;
    Rounding r;
    for (const auto& [user, slot] : g_.users(v)) {
      const Node& n = g_.node(user);
      if (n.op == Op::view && user < id && stores_codes(user)) return std::nullopt;  // of several grids the first
      if (n.op == Op::view || !reads_unrounded(user, id, r)) continue;
      r.edges.emplace_back(user, slot);
    }
    if (r.edges.empty()) return std::nullopt;
    r.kind = Rounding::Kind::left_out;
    r.view = id;
    r.tensor = named(v);
    r.quantizer = *view.quantizer;
    r.pair = view.origin;
    r.source = ir::name_of(g_.producer(v).op);
    return r;
  }
  /// True if `user`, which reads the tensor of `view`, is in another region, or is a Relu of the same region whose result others read:
  /// of the rounded value it is on the same grid. Those readers are added to `r`.
  bool reads_unrounded(NodeId user, NodeId view, Rounding& r) const {
    const Node& n = g_.node(user);
    if (is_alias(n)) {  // moves nothing: what matters is who reads there
      bool any = false;
      for (const auto& [next, slot] : g_.users(n.outputs[0])) {
        if (g_.node(next).op != Op::view && reads_unrounded(next, view, r)) any = true;
      }
      return any || g_.output_uses(n.outputs[0]) > 0;
    }
    if (group_of(user) != group_of(view)) {
      if (r.readers.empty()) add_group(r.around, group_of(user), ir::kNone);
      r.readers.insert(reader(n));
      add(r.onnx_nodes, user);
      return true;
    }
    bool any = false;
    if (n.op != Op::relu || g_.output_uses(n.outputs[0]) > 0) return any;
    for (const auto& [next, slot] : g_.users(n.outputs[0])) {
      if (g_.node(next).op != Op::view && reads_unrounded(next, view, r)) any = true;
    }
    return any;
  }
  void add_group(std::set<std::string>& names, int group, NodeId but) const {
    if (group < 0) return;
    const Group& members = grouping_.groups[static_cast<std::size_t>(group)];
    if (members.anchor != ir::kNone) add(names, members.anchor);
    for (const NodeId other : members.nodes) {
      if (other != but) add(names, other);
    }
  }
  int group_of(NodeId id) const { return grouping_.of_node[static_cast<std::size_t>(id)]; }
  static std::string reader(const Node& n) {
    return n.op == Op::view ? fmt::format("the pair {}", fmt::join(n.origin, ", ")) : std::string(ir::name_of(n.op));
  }
  void add(std::set<std::string>& names, NodeId id) const {
    const auto& origin = g_.node(id).origin;
    names.insert(origin.begin(), origin.end());
  }

  /// Is `v` computed of a linear layer whose parts are stored as their readers want them?
  bool stored_in_parts(ValueId v) const {
    while (in_front_ && in_program(g_, g_.producer(v))) {
      const auto& inputs = g_.producer(v).inputs;
      const auto computed = std::find_if(inputs.begin(), inputs.end(), [&](ValueId in) { return !g_.is_constant(in); });
      if (computed == inputs.end()) return false;
      v = *computed;
    }
    return in_front_ && !why_no_above_moves(g_, grids_, g_.value(v).producer);
  }

  /// Its name; of one without, an ONNX node that it stands for.
  std::string named(ValueId v) const {
    const auto& origin = g_.producer(v).origin;
    return g_.value(v).name.empty() && !origin.empty() ? *origin.begin() : g_.value(v).name;
  }

  /// True if this view's codes are stored as codes: as they are, or behind operations of its group that stay on their grid, such as
  /// a Relu that the normal form moved behind the view.
  bool stores_codes(NodeId view) const { return stores_codes(g_.node(view).outputs[0], group_of(view)); }
  bool stores_codes(ValueId v, int group) const {
    if (codes_.contains(v)) return true;
    for (const auto& [user, slot] : g_.users(v)) {
      const Node& n = g_.node(user);
      if (group_of(user) != group || n.op == Op::view || n.outputs.size() != 1 || !grids_.get(n.outputs[0])) continue;
      if (stores_codes(n.outputs[0], group)) return true;
    }
    return false;
  }

  /// True if the codes of `v` are stored, as they are or behind operations of the group that stay on their grid; or its floats for others than a
  /// softmax, which is computed in floats: scores of attention are rounded for nobody.
  bool reaches_store(ValueId v, int group) const {
    const auto& users = g_.users(v);
    const bool scores =
        g_.output_uses(v) == 0 && !codes_.contains(v) && !users.empty() &&
        std::all_of(users.begin(), users.end(), [&](const auto& use) { return g_.node(use.first).op == Op::softmax; });
    if (scores) return false;
    if (stored_.contains(v)) return true;
    for (const auto& [user, slot] : g_.users(v)) {
      const Node& n = g_.node(user);
      if (group_of(user) != group) return true;
      if (n.op != Op::view && n.outputs.size() == 1 && grids_.get(n.outputs[0]) && reaches_store(n.outputs[0], group)) return true;
    }
    return false;
  }

  const Graph& g_;
  const ir::Grids grids_;
  const Grouping grouping_;
  const bool in_front_;
  std::set<ValueId> stored_, codes_;
};

}  // namespace

std::vector<Rounding> find_roundings(const Graph& graph, const std::set<std::string, std::less<>>& disabled, bool in_front) {
  return Finder(graph, disabled, in_front).run();
}

Graph otherwise(const Graph& graph, const std::vector<const Rounding*>& roundings) {
  Graph other = graph;
  for (const Rounding* r : roundings) {
    for (const auto& [user, slot] : r->edges)
      other.node(user).inputs[static_cast<std::size_t>(slot)] = graph.node(r->view).outputs[0];
  }
  other.touch();
  for (const Rounding* r : roundings) {
    if (r->kind == Rounding::Kind::inside) other.replace_uses(graph.node(r->view).outputs[0], other.node(r->view).inputs[0], false);
  }
  other.remove_dead();
  return other;
}

}  // namespace octavo::plan
