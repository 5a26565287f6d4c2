#include "plan/regions/provenance.h"

#include <map>
#include <set>
#include <string>

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

class Provenance {
 public:
  Provenance(const Graph& graph, std::vector<region::Region>& regions) : g_(graph), regions_(regions) {
    for (std::size_t i = 0; i < regions.size(); ++i) {
      for (const std::string& name : regions[i].onnx_nodes) of_name_[name].insert(i);
    }
  }

  /// Returns true if something was added.
  bool add(NodeId id) {
    const Node& n = g_.node(id);
    std::set<std::size_t> owners;
    for (const ValueId v : n.inputs) {
      if (v != ir::kNone && n.op != ir::Op::constant && !g_.is_constant(v)) merge(owners, g_.producer(v));
    }
    if (owners.empty()) {
      for (const ValueId v : n.outputs) {
        for (const auto& [user, slot] : g_.users(v)) merge(owners, g_.node(user));
      }
    }
    bool added = false;
    for (const std::string& name : n.origin) {
      if (of_name_.contains(name) || owners.empty()) continue;
      for (const std::size_t i : owners) regions_[i].onnx_nodes.insert(name);
      of_name_[name] = owners;
      added = true;
    }
    return added;
  }

 private:
  /// The regions that some ONNX node of `n` is in.
  void merge(std::set<std::size_t>& owners, const Node& n) const {
    for (const std::string& name : n.origin) {
      const auto found = of_name_.find(name);
      if (found != of_name_.end()) owners.insert(found->second.begin(), found->second.end());
    }
  }

  const Graph& g_;
  std::vector<region::Region>& regions_;
  std::map<std::string, std::set<std::size_t>> of_name_;
};

}  // namespace

void account_for_moves(const Graph& graph, std::vector<region::Region>& regions) {
  Provenance provenance(graph, regions);
  const std::vector<NodeId> order = graph.order();
  bool changed = true;
  while (changed) {  // chains of moves from a network input are reached from their readers, one link a round
    changed = false;
    for (const NodeId id : order) changed = provenance.add(id) || changed;
  }
}

}  // namespace octavo::plan
