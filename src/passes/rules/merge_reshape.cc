// merge-reshape:  reshape(reshape(x, a), b) ==> reshape(x, b)
//   Why    the shape in between may have no strides of its own and would cost a copy.
//   Exact  bit for bit: both read the elements in row-major order.
//   Needs  nothing; the inner reshape stays when others read it.
//   Order  before the planner turns reshapes into strides; drop-identity removes a pair that cancels.
#include "passes/merged_move.h"
#include "passes/rules.h"

namespace octavo::passes {
namespace {

struct MergeReshape final : rewrite::Rule {
  std::string_view name() const override { return "merge-reshape"; }
  std::string_view equation() const override { return "reshape(reshape(x, a), b) ==> reshape(x, b)"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    ir::Node& n = g.node(id);
    if (n.op != ir::Op::reshape || g.producer(n.inputs[0]).op != ir::Op::reshape) return rewrite::no_match();
    const ir::Node& inner = g.producer(n.inputs[0]);
    keep_name_and_range(g, n.inputs[0], inner.inputs[0]);
    n.inputs[0] = inner.inputs[0];
    n.origin.insert(inner.origin.begin(), inner.origin.end());
    g.touch();
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& merge_reshape() {
  static const MergeReshape rule;
  return rule;
}

}  // namespace octavo::passes
