#include "plan/candidates/split_conv.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/causes/plan_candidates.h"
#include "plan/candidates/cut.h"
#include "plan/regions/group.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;

/// What stands between a convolution and the slices of its channels.
class Cone {
 public:
  std::vector<NodeId> nodes;                    ///< pointwise, producers first
  std::map<Range, std::vector<NodeId>> slices;  ///< by the channels that they take

  Cone(const Graph& g, const ir::Grids& grids, NodeId conv) : g_(g) { why_ = collect(grids, conv); }
  [[nodiscard]] const std::optional<Reason>& why() const { return why_; }

 private:
  std::optional<Reason> collect(const ir::Grids& grids, NodeId id) {
    const Node& conv = g_.node(id);
    if (conv.op != Op::conv) return because<cause::not_a_convolution>();
    if (const auto groups = ir::get_int(conv.attrs, "group", 1); groups != 1) return because<cause::convolution_has_groups>(groups);
    if (auto why = why_not_in_parts(g_, grids, id)) return why;
    dims_ = g_.type(conv.outputs[0]).shape;
    if (auto why = before_slices(conv.outputs[0])) return why;
    if (slices.size() < 2) return because<cause::channels_not_read_in_parts>();
    std::set<Range> parts;
    for (const auto& [range, of] : slices) parts.insert(range);
    return why_not_apart(parts);
  }

  /// Everything that reads `first`, up to slices; `nodes` in graph order at the end.
  std::optional<Reason> before_slices(ValueId first) {
    if (auto why = follow(first); why || slices.size() < 2) return why;
    std::set<NodeId> members;
    for (const ValueId v : values_) {
      const NodeId id = g_.value(v).producer;
      if (v == first) continue;
      members.insert(id);
      for (const ValueId in : g_.node(id).inputs) {
        if (!values_.contains(in) && !g_.is_constant(in))
          return because<cause::combined_before_slices>(g_.value(v).name, g_.value(in).name);
      }
    }
    for (const NodeId id : g_.order()) {
      if (members.contains(id)) nodes.push_back(id);
    }
    return std::nullopt;
  }

  std::optional<Reason> follow(ValueId v) {
    if (!values_.insert(v).second) return std::nullopt;
    if (g_.output_uses(v) > 0) return because<cause::whole_is_output>();
    for (const auto& [id, slot] : g_.users(v)) {
      const Node& n = g_.node(id);
      if (n.op == Op::slice) {
        const ir::Shape& out = g_.type(n.outputs[0]).shape;
        const auto starts = ir::get_ints(n.attrs, "starts"), steps = ir::get_ints(n.attrs, "steps");
        for (std::size_t d = 0; d < dims_.size(); ++d) {
          if ((!steps.empty() && steps[d] != 1) || (d != 1 && out[d] != dims_[d])) return because<cause::slice_not_of_channels>();
        }
        slices[{starts[1], starts[1] + out[1]}].push_back(id);
        continue;
      }
      const bool pointwise = in_program(g_, n) && n.outputs.size() == 1 && g_.type(n.outputs[0]).shape == dims_;
      if (!pointwise) return because<cause::whole_is_read>(ir::name_of(n.op));
      if (auto why = follow(n.outputs[0])) return why;
    }
    return std::nullopt;
  }

  const Graph& g_;
  ir::Shape dims_;
  std::set<ValueId> values_;
  std::optional<Reason> why_;
};

}  // namespace

std::optional<Reason> why_no_split_conv(const Graph& g, const ir::Grids& grids, NodeId conv) {
  return Cone(g, grids, conv).why();
}

void make_split_conv(Graph& g, const ir::Grids& grids, NodeId id) {
  const Cone cone(g, grids, id);
  if (cone.why()) return;
  const Node conv = g.node(id);
  const ir::Shape dims = g.type(conv.outputs[0]).shape;
  const auto part_of = [&](ValueId whole, Range range) {
    ir::TensorType type = g.type(whole);
    type.shape[1] = range.second - range.first;
    return type;
  };
  for (const auto& [range, slices] : cone.slices) {
    std::map<ValueId, ValueId> part;
    Node piece = conv;
    for (std::size_t i = 1; i < piece.inputs.size(); ++i) piece.inputs[i] = cut_constant(g, piece.inputs[i], 0, range);
    const auto add = [&](Node n) {
      const ValueId whole = n.outputs[0];
      part[whole] = add_part(g, std::move(n), whole, part_of(whole, range));
    };
    add(std::move(piece));
    for (const NodeId member : cone.nodes) {
      Node n = g.node(member);
      n.quantizer = cut(n.quantizer, 1, range);
      for (ValueId& v : n.inputs) {
        if (const auto known = part.find(v); known != part.end()) {
          v = known->second;
          continue;
        }
        // Broadcasting aligns dimensions at the end: channels are the second of `dims`.
        const ir::Shape& shape = g.type(v).shape;
        if (shape.size() + 1 < dims.size()) continue;
        const std::size_t axis = shape.size() + 1 - dims.size();
        if (axis < shape.size() && shape[axis] == dims[1] && dims[1] != 1) v = cut_constant(g, v, axis, range);
      }
      add(std::move(n));
    }
    for (const NodeId s : slices) g.replace_uses(g.node(s).outputs[0], part[g.node(s).inputs[0]], false);
  }
  g.remove_dead();
}

}  // namespace octavo::plan
