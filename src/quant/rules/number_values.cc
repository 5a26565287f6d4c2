// number-values:  two nodes with equal operator, attributes, quantizer and operands ==> one
//   Why    a pair for each reader and one pair for the tensor are the same placement; copies that moving laws made are merged
//          again.
//   Exact  bit for bit: the same computation on the same operands. The order of operands of commutative operators does not matter.
//   Needs  both nodes have readers. Constants, and the order of nodes and operands, become canonical when normalize ends.
//   Order  none.
#include <algorithm>

#include "ir/canonical.h"
#include "quant/codes.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

struct NumberValues final : rewrite::Rule {
  std::string_view name() const override { return "number-values"; }
  std::string_view equation() const override { return "equal nodes ==> one node"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node& n = g.node(id);
    if (n.inputs.empty() || n.outputs.size() != 1 || g.use_count(n.outputs[0]) == 0) return rewrite::no_match();
    std::vector<ir::NodeId> candidates;
    for (const ir::ValueId in : n.inputs) {
      if (in == ir::kNone) continue;
      for (const auto& [user, slot] : g.users(in)) candidates.push_back(user);
      if (!ir::commutes(n.op)) break;  // an equal node reads the same first operand
    }
    for (const ir::NodeId other : candidates) {
      if (other >= id || !same(g, n, g.node(other)) || g.use_count(g.node(other).outputs[0]) == 0) continue;
      substitute(g, n.outputs[0], g.node(other).outputs[0]);
      return rewrite::applied();
    }
    return rewrite::no_match();
  }

 private:
  static bool same(const ir::Graph& g, const ir::Node& a, const ir::Node& b) {
    if (a.op != b.op || b.dead || b.outputs.size() != 1 ||
        ir::hash_attrs(ir::without_defaults(a.op, a.attrs)) != ir::hash_attrs(ir::without_defaults(b.op, b.attrs)) ||
        !(a.quantizer == b.quantizer))
      return false;
    if (g.type(a.outputs[0]) != g.type(b.outputs[0])) return false;
    if (a.inputs == b.inputs) return true;
    return ir::commutes(a.op) && std::is_permutation(a.inputs.begin(), a.inputs.end(), b.inputs.begin(), b.inputs.end());
  }
};

}  // namespace

const rewrite::Rule& number_values() {
  static const NumberValues law;
  return law;
}

}  // namespace octavo::quant
