#include "plan/candidates/above_moves.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/causes/plan_candidates.h"
#include "plan/candidates/cut.h"
#include "plan/layout/layout.h"
#include "plan/regions/group.h"
#include "plan/regions/narrow_marks.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;
using region::TensorRef;

/// A value that others than the cone read, as elements of the layer's result [rows][columns]; offset and strides count elements.
struct Leaf {
  ValueId value = ir::kNone;
  TensorRef of;
  Range columns;
};

bool moves(const Node& n) {
  const auto steps = ir::get_ints(n.attrs, "steps");
  return n.op == Op::transpose || n.op == Op::reshape ||
         (n.op == Op::slice && std::all_of(steps.begin(), steps.end(), [](std::int64_t s) { return s == 1; }));
}

class Cone {
 public:
  std::vector<Leaf> leaves;
  Cone(const Graph& g, const ir::Grids& grids, NodeId gemm) : g_(g), layer_(g.node(gemm).outputs[0]) {
    why_ = collect(grids, gemm);
  }
  [[nodiscard]] const std::optional<Reason>& why() const { return why_; }

 private:
  std::optional<Reason> collect(const ir::Grids& grids, NodeId id) {
    const Node& gemm = g_.node(id);
    const ir::Shape& dims = g_.type(layer_).shape;
    if (gemm.op != Op::gemm || dims.size() != 2) return because<cause::not_a_linear_layer>();
    if (auto why = why_not_in_parts(g_, grids, id)) return why;
    const ValueId bias = gemm.inputs.size() > 2 ? gemm.inputs[2] : ir::kNone;
    if (bias != ir::kNone && g_.type(bias).shape != ir::Shape{dims[1]}) return because<cause::weights_or_bias_computed>();
    TensorRef all;
    all.dtype = ir::DType::u8, all.dims = dims, all.strides = ir::dense_strides(dims);
    if (auto why = follow(layer_, all, false, false)) return why;
    if (!behind_moves_) return because<cause::nothing_behind_moves>();
    std::set<Range> ranges;
    for (const Leaf& leaf : leaves) ranges.insert(leaf.columns);
    return why_not_apart(ranges);
  }

  /// Can the node be computed of elements at other places? `moved`: they may be there already.
  [[nodiscard]] bool takes(const Node& n, ValueId v, bool moved) const {
    if (n.outputs.size() != 1 || !in_program(g_, n) || g_.type(n.outputs[0]).shape != g_.type(v).shape) return false;
    if (n.quantizer && !n.quantizer->per_tensor()) return false;
    const std::int64_t columns = g_.type(layer_).shape[1];
    return std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId in) {
      if (in == v) return true;
      return g_.is_constant(in) && ((ir::count(g_.type(in).shape) == 1 && g_.type(in).shape.size() <= 2) ||
                                    (!moved && g_.type(in).shape == ir::Shape{columns}));
    });
  }

  std::optional<Reason> follow(ValueId v, const TensorRef& at, bool moved, bool behind) {
    bool read = g_.output_uses(v) > 0;
    std::set<NodeId> seen;
    for (const auto& [id, slot] : g_.users(v)) {
      const Node& n = g_.node(id);
      if (!seen.insert(id).second) continue;
      std::optional<TensorRef> next;
      if (n.op == Op::transpose) next = permuted(at, ir::get_ints(n.attrs, "perm"));
      if (n.op == Op::reshape) next = reshaped(at, g_.type(n.outputs[0]).shape);
      if (n.op == Op::slice && moves(n))
        next = sliced(at, ir::get_ints(n.attrs, "starts"), ir::get_ints(n.attrs, "steps"), g_.type(n.outputs[0]).shape);
      if (next) {
        if (auto why = follow(n.outputs[0], *next, true, behind)) return why;
      } else if (takes(n, v, moved)) {
        if (auto why = follow(n.outputs[0], at, moved, behind || (moved && !is_narrow_cast(n)))) return why;
      } else {
        read = true;
      }
    }
    return read ? add_leaf(v, at, behind) : std::nullopt;
  }

  std::optional<Reason> add_leaf(ValueId v, const TensorRef& at, bool behind) {
    const std::int64_t rows = g_.type(layer_).shape[0], columns = g_.type(layer_).shape[1];
    std::int64_t of_rows = 1, of_columns = 1, reach = 1;
    for (std::size_t d = 0; d < at.dims.size(); ++d) {
      if (at.dims[d] == 1) continue;
      if (at.strides[d] % columns == 0) {
        of_rows *= at.dims[d];
      } else {
        of_columns *= at.dims[d], reach += (at.dims[d] - 1) * at.strides[d];
      }
    }
    const std::int64_t first = at.offset % columns;
    if (of_rows != rows || at.offset / columns != 0 || of_columns != reach || first + reach > columns)
      return because<cause::not_whole_rows_of_columns>(g_.value(v).name);
    leaves.push_back({v, at, {first, first + reach}});
    behind_moves_ = behind_moves_ || behind;
    return std::nullopt;
  }

  const Graph& g_;
  ValueId layer_;
  bool behind_moves_ = false;
  std::optional<Reason> why_;
};

/// One part of the columns: the cone's pointwise operations over [rows][columns of the part].
class Part {
 public:
  Part(Graph& g, ValueId layer, Range columns) : g_(g), layer_(layer), columns_(columns) {
    Node gemm = g.producer(layer);
    for (std::size_t i = 1; i < gemm.inputs.size(); ++i) gemm.inputs[i] = cut(gemm.inputs[i], i == 1 ? 1 : 0);
    of_[layer] = made(std::move(gemm), layer);
  }

  /// What stands for `v`, a value of the cone; the nodes on the way that only move are added to `origin`.
  ValueId of(ValueId v, std::set<std::string>& origin) {
    if (const auto known = of_.find(v); known != of_.end()) return known->second;
    Node n = g_.producer(v);
    ValueId out = ir::kNone;
    if (moves(n)) {
      origin.insert(n.origin.begin(), n.origin.end());
      return of(n.inputs[0], origin);
    }
    for (ValueId& in : n.inputs) in = g_.is_constant(in) ? cut(in, 0) : of(in, origin);
    if (is_held(n) && is_narrow_cast(g_.producer(n.inputs[0]))) {
      out = g_.producer(n.inputs[0]).inputs[0];  // nothing is stored between the two
    } else {
      out = made(std::move(n), v);
    }
    return of_[v] = out;
  }

 private:
  [[nodiscard]] std::int64_t all() const { return g_.type(layer_).shape[1]; }
  ValueId cut(ValueId v, std::size_t axis) {
    const bool whole = columns_ == Range{0, all()};
    if (v == ir::kNone || whole || ir::count(g_.type(v).shape) == 1) return v;
    return cut_constant(g_, v, axis, columns_);
  }
  ValueId made(Node n, ValueId whole) {
    ir::TensorType type = g_.type(whole);
    type.shape = {g_.type(layer_).shape[0], columns_.second - columns_.first};
    return add_part(g_, std::move(n), whole, std::move(type));
  }

  Graph& g_;
  ValueId layer_;
  Range columns_;
  std::map<ValueId, ValueId> of_;
};

/// The leaf's elements, of which `part` has these columns of the layer's `columns`.
ValueId moved_from(Graph& g, ValueId part, const Leaf& leaf, std::int64_t columns, const std::set<std::string>& origin) {
  const std::int64_t own = leaf.columns.second - leaf.columns.first;
  Strides strides = leaf.of.strides;
  for (std::size_t d = 0; d < strides.size(); ++d) {
    if (leaf.of.dims[d] > 1 && strides[d] % columns == 0) strides[d] = strides[d] / columns * own;
  }
  std::vector<int> order = order_of(leaf.of.dims, strides);
  ir::Shape sorted;
  std::vector<std::int64_t> perm(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) {
    sorted.push_back(leaf.of.dims[static_cast<std::size_t>(order[k])]);
    perm[static_cast<std::size_t>(order[k])] = static_cast<std::int64_t>(k);
  }
  const std::string& name = g.value(leaf.value).name;
  const ValueId shaped = ir::add_inferred(g, Op::reshape, {part}, {{"shape", sorted}}, origin, name);
  if (std::is_sorted(perm.begin(), perm.end())) return shaped;
  return ir::add_inferred(g, Op::transpose, {shaped}, {{"perm", perm}}, origin, name);
}

}  // namespace

std::optional<Reason> why_no_above_moves(const Graph& g, const ir::Grids& grids, NodeId gemm) {
  return Cone(g, grids, gemm).why();
}

std::set<ValueId> make_above_moves(Graph& g, const ir::Grids& grids, NodeId id) {
  const Cone cone(g, grids, id);
  if (cone.why()) return {};
  const ValueId layer = g.node(id).outputs[0];
  const std::int64_t columns = g.type(layer).shape[1];
  std::map<Range, Part> parts;
  std::set<ValueId> stored;
  std::vector<std::pair<ValueId, ValueId>> instead;
  for (const Leaf& leaf : cone.leaves) {
    Part& part = parts.try_emplace(leaf.columns, g, layer, leaf.columns).first->second;
    std::set<std::string> origin;
    const ValueId value = part.of(leaf.value, origin);
    stored.insert(value);
    instead.emplace_back(leaf.value, moved_from(g, value, leaf, columns, origin));
  }
  for (const auto& [from, to] : instead) g.replace_uses(from, to, false);
  g.remove_dead();
  return stored;
}

}  // namespace octavo::plan
