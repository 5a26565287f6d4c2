// merge-roll:  concat(slice(x, from k), slice(x, up to k)) ==> gather(x, i)
//   Why    exporters write a shift of a tensor along an axis, as windows of attention have it, as slices that are joined again: a copy each. One
//          gather moves all of it.
//   Exact  bit for bit: elements only move.
//   Needs  every operand is a slice of the same tensor along the axis of the concat alone, with no other reader; at most 65536 elements along it.
//   Order  before merge-gather, which joins gathers along one axis.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "passes/rules.h"

namespace octavo::passes {
namespace {

using ir::Op;
constexpr std::int64_t kMostRolled = 65536;

struct MergeRoll final : rewrite::Rule {
  std::string_view name() const override { return "merge-roll"; }
  std::string_view equation() const override { return "concat(slice(x, from k), slice(x, up to k)) ==> gather(x, i)"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if (n.op != Op::concat || n.inputs.size() < 2) return rewrite::no_match();
    const auto axis = static_cast<std::size_t>(ir::get_int(n.attrs, "axis"));
    ir::ValueId x = ir::kNone;
    std::vector<std::int64_t> taken;
    std::set<std::string> origin = n.origin;
    for (const ir::ValueId v : n.inputs) {
      const ir::Node& slice = g.producer(v);
      if (slice.op != Op::slice || g.use_count(v) != 1 || (x != ir::kNone && slice.inputs[0] != x)) return rewrite::no_match();
      x = slice.inputs[0];
      const ir::Shape &whole = g.type(x).shape, &part = g.type(v).shape;
      for (std::size_t d = 0; d < whole.size(); ++d) {
        if (d != axis && whole[d] != part[d]) return rewrite::no_match();
      }
      const auto starts = ir::get_ints(slice.attrs, "starts"), steps = ir::get_ints(slice.attrs, "steps");
      for (std::int64_t i = 0; i < part[axis]; ++i) taken.push_back(starts[axis] + i * (steps.empty() ? 1 : steps[axis]));
      origin.insert(slice.origin.begin(), slice.origin.end());
    }
    if (taken.size() > static_cast<std::size_t>(kMostRolled) || g.is_constant(x)) return rewrite::no_match();
    ir::Tensor indices(ir::DType::s64, {static_cast<std::int64_t>(taken.size())});
    std::copy(taken.begin(), taken.end(), indices.mutable_data<std::int64_t>().begin());
    const std::vector<ir::ValueId> inputs{x, g.add_constant(indices)};
    const ir::ValueId y =
        ir::add_inferred(g, Op::gather, inputs, {{"axis", static_cast<std::int64_t>(axis)}}, origin, g.value(n.outputs[0]).name);
    g.value(y).range = g.value(n.outputs[0]).range;
    g.replace_uses(n.outputs[0], y);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& merge_roll() {
  static const MergeRoll rule;
  return rule;
}

}  // namespace octavo::passes
