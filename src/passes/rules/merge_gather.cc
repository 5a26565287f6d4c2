// merge-gather:  slice(gather(x, i)) ==> gather(x, i'),  gather(gather(x, i), j) ==> gather(x, i[j])
//   Why    halves of a shuffled tensor are gathered where they are wanted: the whole is never stored.
//   Exact  bit for bit: elements are selected.
//   Needs  constant indices along one axis (i of one dimension), of which the slice takes a part and leaves the other axes whole;
//   every
//          reader of the gather is such a slice or gather, so that it goes away. Indices that count up are a slice again.
//   Order  after merge-shuffle; narrow-concat then leaves out the operands of a concat that the fewer indices do not touch.

#include <algorithm>

#include "base/causes/passes.h"
#include "passes/rules.h"
#include "quant/codes.h"

namespace octavo::passes {
namespace {

using ir::Op;
using Ints = std::vector<std::int64_t>;

/// Along which axis a node selects, and which elements; nothing when that is not known or not along one axis.
struct Selection {
  std::int64_t axis = -1;
  Ints taken;
};
std::optional<Selection> selection_of(const ir::Graph& g, const ir::Node& n) {
  if (n.op != Op::slice && n.op != Op::gather) return std::nullopt;
  const ir::Shape &x = g.type(n.inputs[0]).shape, &y = g.type(n.outputs[0]).shape;
  Selection s;
  if (n.op == Op::gather) {
    if (!g.is_constant(n.inputs[1]) || g.type(n.inputs[1]).shape.size() != 1) return std::nullopt;
    s.axis = ir::get_int(n.attrs, "axis");
    s.taken = g.payload(n.inputs[1]).as_ints();
    const std::int64_t extent = x[static_cast<std::size_t>(s.axis)];
    for (std::int64_t& i : s.taken) {
      i += i < 0 ? extent : 0;
      if (i < 0 || i >= extent) return std::nullopt;
    }
    return s;
  }
  const Ints starts = ir::get_ints(n.attrs, "starts"), steps = ir::get_ints(n.attrs, "steps");
  for (std::size_t d = 0; d < x.size(); ++d) {
    const std::int64_t step = steps.empty() ? 1 : steps[d];
    if (x[d] == y[d] && step == 1) continue;
    if (s.axis >= 0) return std::nullopt;
    s.axis = static_cast<std::int64_t>(d);
    for (std::int64_t i = 0; i < y[d]; ++i) s.taken.push_back(starts[d] + i * step);
  }
  return s.axis < 0 ? std::nullopt : std::optional(s);
}

struct MergeGather final : rewrite::Rule {
  std::string_view name() const override { return "merge-gather"; }
  std::string_view equation() const override {
    return "slice(gather(x, i)) ==> gather(x, i'),  gather(gather(x, i), j) ==> gather(x, i[j])";
  }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if ((n.op != Op::slice && n.op != Op::gather) || g.producer(n.inputs[0]).op != Op::gather) return rewrite::no_match();
    const ir::Node inner = g.producer(n.inputs[0]);
    const auto first = selection_of(g, inner), second = selection_of(g, n);
    if (!first || !second || first->axis != second->axis) return rewrite::no_match();
    if (g.output_uses(n.inputs[0]) > 0) return rewrite::refuse(because<cause::gathered_is_output>());
    for (const auto& [user, slot] : g.users(n.inputs[0])) {
      const auto other = selection_of(g, g.node(user));
      if (slot != 0 || !other || other->axis != first->axis)
        return rewrite::refuse(because<cause::gathered_is_read>(ir::name_of(g.node(user).op)));
    }
    Ints taken;
    for (const std::int64_t i : second->taken) taken.push_back(first->taken[static_cast<std::size_t>(i)]);
    std::set<std::string> origin = n.origin;
    origin.insert(inner.origin.begin(), inner.origin.end());
    const ir::ValueId y = select(g, inner.inputs[0], first->axis, taken, origin);
    if (y == inner.inputs[0]) {
      quant::substitute(g, n.outputs[0], y);
      return rewrite::applied();
    }
    ir::Value& made = g.value(y);
    made.name = g.value(n.outputs[0]).name;
    made.range = g.value(n.outputs[0]).range ? g.value(n.outputs[0]).range : g.value(n.inputs[0]).range;
    g.replace_uses(n.outputs[0], y);
    return rewrite::applied();
  }

 private:
  static ir::ValueId select(ir::Graph& g, ir::ValueId x, std::int64_t axis, const Ints& taken,
                            const std::set<std::string>& origin) {
    const ir::Shape shape = g.type(x).shape;
    const auto d = static_cast<std::size_t>(axis);
    bool up = !taken.empty();
    for (std::size_t k = 1; k < taken.size(); ++k) up = up && taken[k] == taken[k - 1] + 1;
    if (up && static_cast<std::int64_t>(taken.size()) == shape[d]) return x;
    if (up) {
      Ints starts(shape.size(), 0), ends(shape.begin(), shape.end());
      starts[d] = taken.front();
      ends[d] = taken.back() + 1;
      return ir::add_inferred(g, Op::slice, {x}, {{"starts", starts}, {"ends", ends}, {"steps", Ints(shape.size(), 1)}}, origin);
    }
    ir::Tensor t(ir::DType::s64, {static_cast<std::int64_t>(taken.size())});
    std::copy(taken.begin(), taken.end(), t.mutable_data<std::int64_t>().begin());
    return ir::add_inferred(g, Op::gather, {x, g.add_constant(std::move(t))}, {{"axis", axis}}, origin);
  }
};

}  // namespace

const rewrite::Rule& merge_gather() {
  static const MergeGather rule;
  return rule;
}

}  // namespace octavo::passes
