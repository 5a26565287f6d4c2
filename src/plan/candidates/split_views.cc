#include "plan/candidates/split_views.h"

#include <algorithm>
#include <vector>

#include "base/causes/plan_candidates.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;

/// A slice of channels, read through `view` and, `again`, through `outer` behind it.
struct Part {
  NodeId view = ir::kNone, slice = ir::kNone, outer = ir::kNone;
  std::int64_t begin = 0, end = 0;
};

class Collector {
 public:
  Collector(const Graph& g, ValueId value) : g_(g), dims_(g.type(value).shape) { why_ = collect(value); }
  std::vector<Part> parts;
  [[nodiscard]] const std::optional<Reason>& why() const { return why_; }

 private:
  std::optional<Reason> collect(ValueId value) {
    if (dims_.size() != 4) return because<cause::not_an_image>();
    std::set<NodeId> views;
    if (g_.output_uses(value) > 0) return because<cause::tensor_is_output>();
    for (const auto& [user, slot] : g_.users(value)) {
      const Node& view = g_.node(user);
      if (view.op != Op::view || !view.quantizer->per_tensor() || view.quantizer->arith != ir::DType::f32)
        return because<cause::read_otherwise>(g_.value(view.outputs[0]).name);
      views.insert(user);
    }
    if (views.size() < 2) return because<cause::one_view_only>();
    for (const NodeId id : views) {
      if (g_.node(id).quantizer->type != g_.node(*views.begin()).quantizer->type) return because<cause::view_types_differ>();
      if (auto why = slices(id, id, ir::kNone)) return why;
    }
    for (const Part& a : parts) {
      for (const Part& b : parts) {
        if (a.view != b.view && a.begin < b.end && b.begin < a.end)
          return because<cause::parts_at_two_scales>(std::max(a.begin, b.begin), std::min(a.end, b.end) - 1);
      }
    }
    // One outer quantizer serves all: behind the views on its own grid it changes nothing (q(q(x)) = q(x) in fp32).
    for (const Part& p : parts) {
      if (p.outer == ir::kNone) continue;
      for (const Part& o : parts) {
        if (o.outer != ir::kNone && !(*g_.node(o.outer).quantizer == *g_.node(p.outer).quantizer))
          return because<cause::two_scales_behind_views>();
      }
    }
    return std::nullopt;
  }

  std::optional<Reason> slices(NodeId reader, NodeId view, NodeId outer) {
    const ValueId v = g_.node(reader).outputs[0];
    if (g_.output_uses(v) > 0) return because<cause::view_is_output>();
    for (const auto& [user, slot] : g_.users(v)) {
      const Node& n = g_.node(user);
      if (n.op == Op::view && outer == ir::kNone && n.quantizer->per_tensor() && n.quantizer->arith == ir::DType::f32) {
        if (auto why = slices(user, view, user)) return why;
        continue;
      }
      if (n.op != Op::slice) return because<cause::whole_view_is_read>(ir::name_of(n.op));
      const ir::Shape& out = g_.type(n.outputs[0]).shape;
      const auto starts = ir::get_ints(n.attrs, "starts"), steps = ir::get_ints(n.attrs, "steps");
      const bool whole = out[0] == dims_[0] && out[2] == dims_[2] && out[3] == dims_[3];
      if (!whole || std::any_of(steps.begin(), steps.end(), [](std::int64_t s) { return s != 1; }))
        return because<cause::slice_not_of_channels>();
      parts.push_back({view, user, outer, starts[1], starts[1] + out[1]});
    }
    return std::nullopt;
  }

  const Graph& g_;
  ir::Shape dims_;
  std::optional<Reason> why_;
};

}  // namespace

std::optional<Reason> why_no_split_views(const Graph& g, ValueId value) {
  return Collector(g, value).why();
}

void make_split_views(Graph& g, ValueId value) {
  const Collector found(g, value);
  const std::vector<Part>& parts = found.parts;
  if (found.why()) return;
  const auto channels = static_cast<std::size_t>(g.type(value).shape[1]);
  const ir::Quantizer first = *g.node(parts[0].view).quantizer;
  ir::Quantizer q = first;
  q.axis = 1;
  q.scale.assign(channels, first.scale[0]);
  q.zero_point.assign(channels, first.zero_point[0]);
  std::set<std::string> origin;
  for (const Part& p : parts) {
    const Node& view = g.node(p.view);
    origin.insert(view.origin.begin(), view.origin.end());
    for (auto c = static_cast<std::size_t>(p.begin); c < static_cast<std::size_t>(p.end); ++c) {
      q.scale[c] = view.quantizer->scale[0];
      q.zero_point[c] = view.quantizer->zero_point[0];
    }
  }
  const ValueId all = g.add_quantizer(Op::view, value, q, g.type(value), origin, g.value(value).name);
  const auto outer = std::find_if(parts.begin(), parts.end(), [](const Part& p) { return p.outer != ir::kNone; });
  ValueId behind = ir::kNone;
  if (outer != parts.end()) {
    const Node node = g.node(outer->outer);
    behind = g.add_quantizer(Op::view, all, *node.quantizer, g.type(value), node.origin, g.value(node.outputs[0]).name);
  }
  for (const Part& p : parts) {
    const bool on_outer = behind != ir::kNone && *g.node(p.view).quantizer == *g.node(outer->outer).quantizer;
    g.node(p.slice).inputs[0] = p.outer != ir::kNone || on_outer ? behind : all;
    g.touch();
  }
  g.remove_dead();
}

}  // namespace octavo::plan
