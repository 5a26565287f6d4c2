// merge-shuffle:  reshape(transpose(reshape(x, a), p), b) ==> gather(x, i)
//   Why    exporters write a channel shuffle as three operators on five dimensions. On channels-last images, strides cannot express
//          any of them, so each would be a copy. Together they are one permutation of channels.
//   Exact  bit for bit: elements only move.
//   Needs  all that moves lies inside one axis of x of at most 65536 elements; the three operators have no other readers between
//   them.
//          A result of another shape than x is a reshape behind the gather; when only dimensions of one element move it is all that
//          is left.
//   Order  after merge-transpose and merge-reshape have made one transpose between two reshapes.

#include <numeric>

#include "base/causes/passes.h"
#include "passes/rules.h"

namespace octavo::passes {
namespace {

using Ints = std::vector<std::int64_t>;
constexpr std::int64_t kMost = 65536;

std::int64_t product(const ir::Shape& dims, std::size_t from, std::size_t to) {
  return std::accumulate(dims.begin() + static_cast<std::ptrdiff_t>(from), dims.begin() + static_cast<std::ptrdiff_t>(to),
                         std::int64_t{1}, std::multiplies<>());
}

/// The axis of `x` that dimensions [from, to) of `split` make up, one way or another with neighbours in [0, first) and [last,
/// rank). Sets from and to; x.size() when there is none.
std::size_t find_axis(const ir::Shape& x, const ir::Shape& split, std::size_t first, std::size_t last, std::size_t& from,
                      std::size_t& to) {
  for (std::size_t axis = 0; axis < x.size(); ++axis) {
    const std::int64_t before = product(x, 0, axis);
    for (from = 0; from <= first; ++from) {
      if (product(split, 0, from) != before) continue;
      for (to = last; to <= split.size(); ++to) {
        if (product(split, from, to) == x[axis]) return axis;
      }
    }
  }
  return x.size();
}

struct MergeShuffle final : rewrite::Rule {
  std::string_view name() const override { return "merge-shuffle"; }
  std::string_view equation() const override { return "reshape(transpose(reshape(x, a), p), b) ==> gather(x, i)"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if (n.op != ir::Op::reshape || g.producer(n.inputs[0]).op != ir::Op::transpose) return rewrite::no_match();
    const ir::Node turn = g.producer(n.inputs[0]);
    if (g.producer(turn.inputs[0]).op != ir::Op::reshape) return rewrite::no_match();
    const ir::Node split = g.producer(turn.inputs[0]);
    const ir::ValueId x = split.inputs[0];
    const ir::Shape shape = g.type(x).shape;
    if (ir::count(shape) == 0) return rewrite::no_match();
    for (const ir::ValueId v : {n.inputs[0], turn.inputs[0]}) {
      if (g.use_count(v) > 1) return rewrite::refuse(because<cause::several_readers>(g.value(v).name, g.use_count(v)));
    }
    // Dimensions [first, last) move, the others keep their places; those of one element are nowhere.
    ir::Shape parts;
    const Ints perm = squeezed(g.type(turn.inputs[0]).shape, ir::get_ints(turn.attrs, "perm"), parts);
    std::size_t first = 0, last = perm.size();
    while (first < last && perm[first] == static_cast<std::int64_t>(first)) ++first;
    while (last > first && perm[last - 1] == static_cast<std::int64_t>(last) - 1) --last;
    std::size_t from = 0, to = 0;
    std::optional<ir::Quantizer> range = g.value(n.outputs[0]).range;
    for (const ir::ValueId v : {n.inputs[0], turn.inputs[0]}) range = range ? range : g.value(v).range;
    std::set<std::string> origin = n.origin;
    for (const ir::Node* other : {&turn, &split}) origin.insert(other->origin.begin(), other->origin.end());
    if (first == last) {
      const ir::ValueId same = ir::add_inferred(g, ir::Op::reshape, {x}, n.attrs, origin, g.value(n.outputs[0]).name);
      g.value(same).range = range;
      g.replace_uses(n.outputs[0], same);
      return rewrite::applied();
    }
    const std::size_t axis = find_axis(shape, parts, first, last, from, to);
    if (axis == shape.size())
      return rewrite::refuse(because<cause::moves_between_axes>(ir::to_string(parts), ir::to_string(shape)));
    if (shape[axis] > kMost) return rewrite::refuse(because<cause::axis_too_long>(shape[axis], kMost));

    const std::vector<ir::ValueId> inputs{x, g.add_constant(indices(parts, perm, from, to))};
    ir::ValueId y = ir::add_inferred(g, ir::Op::gather, inputs, {{"axis", static_cast<std::int64_t>(axis)}}, origin);
    if (g.type(n.outputs[0]).shape != shape) y = ir::add_inferred(g, ir::Op::reshape, {y}, n.attrs, origin);
    g.value(y).name = g.value(n.outputs[0]).name;
    g.value(y).range = range;
    g.replace_uses(n.outputs[0], y);
    return rewrite::applied();
  }

 private:
  static Ints squeezed(const ir::Shape& dims, const Ints& perm, ir::Shape& parts) {
    Ints place(dims.size(), -1), out;
    for (std::size_t k = 0; k < dims.size(); ++k) {
      if (dims[k] == 1) continue;
      place[k] = static_cast<std::int64_t>(parts.size());
      parts.push_back(dims[k]);
    }
    for (const std::int64_t k : perm) {
      if (place[static_cast<std::size_t>(k)] >= 0) out.push_back(place[static_cast<std::size_t>(k)]);
    }
    return out;
  }

  /// Which element of the axis comes where, when its parts [from, to) are taken in the order of perm.
  static ir::Tensor indices(const ir::Shape& parts, const Ints& perm, std::size_t from, std::size_t to) {
    const ir::Shape own(parts.begin() + static_cast<std::ptrdiff_t>(from), parts.begin() + static_cast<std::ptrdiff_t>(to));
    const auto strides = ir::dense_strides(own);
    ir::Tensor out(ir::DType::s64, {ir::count(own)});
    Ints at(own.size(), 0);  // counts in the order of the result
    for (std::int64_t& index : out.mutable_data<std::int64_t>()) {
      index = 0;
      for (std::size_t k = 0; k < at.size(); ++k) index += at[k] * strides[static_cast<std::size_t>(perm[from + k]) - from];
      for (std::size_t k = at.size(); k-- > 0;) {
        if (++at[k] < own[static_cast<std::size_t>(perm[from + k]) - from]) break;
        at[k] = 0;
      }
    }
    return out;
  }
};

}  // namespace

const rewrite::Rule& merge_shuffle() {
  static const MergeShuffle rule;
  return rule;
}

}  // namespace octavo::passes
