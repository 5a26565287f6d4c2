#include "plan/split_views.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;

struct Part {
  NodeId view = ir::kNone, slice = ir::kNone;
  std::int64_t begin = 0, end = 0;
};

std::string collect(const Graph& g, ValueId value, std::vector<Part>& parts) {
  const ir::Shape& dims = g.type(value).shape;
  if (dims.size() != 4) return "not an image";
  if (g.output_uses(value) > 0) return "it is a network output";
  std::set<NodeId> views;
  for (const auto& [user, slot] : g.users(value)) {
    const Node& view = g.node(user);
    if (view.op != Op::view || !view.quantizer->per_tensor()) return fmt::format("\"{}\" reads it in float", view.name);
    views.insert(user);
  }
  if (views.size() < 2) return "it has one view";
  const auto& first = *g.node(*views.begin()).quantizer;
  for (const NodeId id : views) {
    const Node& view = g.node(id);
    if (view.quantizer->type != first.type || view.quantizer->arith != first.arith) return "its views have different types";
    if (g.output_uses(view.outputs[0]) > 0) return "a view of it is a network output";
    for (const auto& [user, slot] : g.users(view.outputs[0])) {
      const Node& slice = g.node(user);
      if (slice.op != Op::slice) return fmt::format("all of a view is read by {}", ir::name_of(slice.op));
      const ir::Shape& out = g.type(slice.outputs[0]).shape;
      const auto starts = ir::get_ints(slice.attrs, "starts"), steps = ir::get_ints(slice.attrs, "steps");
      const bool whole = out[0] == dims[0] && out[2] == dims[2] && out[3] == dims[3];
      if (!whole || std::any_of(steps.begin(), steps.end(), [](std::int64_t s) { return s != 1; }))
        return "a slice is not of channels";
      parts.push_back({id, user, starts[1], starts[1] + out[1]});
    }
  }
  for (const Part& a : parts) {
    for (const Part& b : parts) {
      if (a.view != b.view && a.begin < b.end && b.begin < a.end)
        return fmt::format("channels {} to {} are read at two scales", b.begin, a.end);
    }
  }
  return "";
}

}  // namespace

std::string why_no_split_views(const Graph& g, ValueId value) {
  std::vector<Part> parts;
  return collect(g, value, parts);
}

void make_split_views(Graph& g, ValueId value) {
  std::vector<Part> parts;
  if (!collect(g, value, parts).empty()) return;
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
  for (const Part& p : parts) {
    g.node(p.slice).inputs[0] = all;
    g.touch();
  }
  g.remove_dead();
}

}  // namespace octavo::plan
