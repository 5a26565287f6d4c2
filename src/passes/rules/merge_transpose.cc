// merge-transpose:  transpose(transpose(x, p), q) ==> transpose(x, p[q])
//   Why    one copy, or one stride pattern, instead of two.
//   Exact  bit for bit: elements only move.
//   Needs  nothing; the inner transpose stays when others read it.
//   Order  before the planner turns transposes into strides; drop-identity removes a pair that cancels.
#include "passes/merged_move.h"
#include "passes/rules.h"

namespace octavo::passes {
namespace {

struct MergeTranspose final : rewrite::Rule {
  std::string_view name() const override { return "merge-transpose"; }
  std::string_view equation() const override { return "transpose(transpose(x, p), q) ==> transpose(x, p[q])"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    ir::Node& n = g.node(id);
    if (n.op != ir::Op::transpose || g.producer(n.inputs[0]).op != ir::Op::transpose) return rewrite::no_match();
    const ir::Node& inner = g.producer(n.inputs[0]);
    const auto p = ir::get_ints(inner.attrs, "perm");
    auto q = ir::get_ints(n.attrs, "perm");
    for (std::int64_t& axis : q) axis = p[static_cast<std::size_t>(axis)];
    n.attrs["perm"] = q;
    keep_name_and_range(g, n.inputs[0], inner.inputs[0]);
    n.inputs[0] = inner.inputs[0];
    n.origin.insert(inner.origin.begin(), inner.origin.end());
    g.touch();
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& merge_transpose() {
  static const MergeTranspose rule;
  return rule;
}

}  // namespace octavo::passes
