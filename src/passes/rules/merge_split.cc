// merge-split:  reshape(transpose(reshape(x, a), p), b) ==> transpose(reshape(x, a'), p'), b splits dimensions
//   Why    exporters merge batch and heads in front of a transpose and split them again behind it. The merged dimension has no stride of its own in
//          a part of a joint product of Q, K and V, so a copy would make one; of the finer dimensions each has one.
//   Exact  bit for bit: elements only move.
//   Needs  each dimension between transpose and b is the product of neighbours in b's result (dimensions of one element come and go); the inner
//          two have no other reader.
//   Order  before merge-shuffle, which would make a gather of rows that change places; before the planner turns views into strides.
#include <algorithm>
#include <vector>

#include "passes/rules.h"
#include "passes/shape_groups.h"

namespace octavo::passes {
namespace {

using ir::Op;
using Ints = std::vector<std::int64_t>;

/// For each dimension of `merged` the dimensions of `split` (those of one element left out) whose product it is; empty where there are none such.
std::vector<std::vector<std::size_t>> parts_of(const ir::Shape& merged, const ir::Shape& split) {
  std::vector<std::vector<std::size_t>> out(merged.size());
  for (const Group& group : groups_of(merged, split)) {
    std::size_t whole = merged.size();
    for (std::size_t d = group.from; d < group.to; ++d) {
      if (merged[d] == 1) continue;
      if (whole != merged.size()) return {};
      whole = d;
    }
    for (std::size_t d = group.first; d < group.end; ++d) {
      if (split[d] != 1) out[whole].push_back(d);
    }
  }
  return out;
}

struct MergeSplit final : rewrite::Rule {
  std::string_view name() const override { return "merge-split"; }
  std::string_view equation() const override {
    return "reshape(transpose(reshape(x, a), p), b) ==> transpose(reshape(x, a'), p'), b splits dimensions";
  }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if (n.op != Op::reshape || g.producer(n.inputs[0]).op != Op::transpose || g.use_count(n.inputs[0]) != 1)
      return rewrite::no_match();
    const ir::Node turn = g.producer(n.inputs[0]);
    if (g.producer(turn.inputs[0]).op != Op::reshape || g.use_count(turn.inputs[0]) != 1) return rewrite::no_match();
    const ir::Node first = g.producer(turn.inputs[0]);
    const ir::Shape merged = g.type(n.inputs[0]).shape, result = g.type(n.outputs[0]).shape;
    if (ir::count(result) == 0) return rewrite::no_match();
    const auto parts = parts_of(merged, result);
    if (parts.empty()) return rewrite::no_match();
    // The finer dimensions in the order that they have in x: those of one element first, then the parts of each dimension.
    const Ints p = ir::get_ints(turn.attrs, "perm");
    Ints shape, perm(result.size());
    for (std::size_t d = 0; d < result.size(); ++d) {
      if (result[d] != 1) continue;
      perm[d] = static_cast<std::int64_t>(shape.size());
      shape.push_back(1);
    }
    for (std::size_t source = 0; source < p.size(); ++source) {
      const auto place = static_cast<std::size_t>(std::find(p.begin(), p.end(), static_cast<std::int64_t>(source)) - p.begin());
      for (const std::size_t d : parts[place]) {
        perm[d] = static_cast<std::int64_t>(shape.size());
        shape.push_back(result[d]);
      }
    }
    std::set<std::string> origin = n.origin;
    origin.insert(turn.origin.begin(), turn.origin.end());
    const ir::ValueId finer = ir::add_inferred(g, Op::reshape, {first.inputs[0]}, {{"shape", shape}}, first.origin);
    const ir::ValueId y = ir::add_inferred(g, Op::transpose, {finer}, {{"perm", perm}}, origin, g.value(n.outputs[0]).name);
    g.value(finer).range = g.value(turn.inputs[0]).range;
    g.value(y).range = g.value(n.outputs[0]).range;
    g.replace_uses(n.outputs[0], y);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& merge_split() {
  static const MergeSplit rule;
  return rule;
}

}  // namespace octavo::passes
