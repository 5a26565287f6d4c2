// narrow-concat:  slice(concat(a, b, c)) ==> slice(concat(b))   gather(concat(a, b, c), i) ==> gather(concat(b), i')
//   Why    parts that no reader uses must not affect how the other parts are stored, or which clip or relu above can be removed; a
//          part that is read as a whole needs no slice.
//   Exact  bit for bit: the same elements of the same parts.
//   Needs  the slice or gather runs along the concat's axis (indices constant), and reads no element of some part.
//   Order  any; move-view-slice and move-view-gather bring the views below first or later, to the same form.
#include <algorithm>
#include <vector>

#include "quant/codes.h"
#include "quant/rules.h"

namespace octavo::quant {
namespace {

using ir::Op;

/// The elements along the axis that the node reads, in order; nothing when they are not known.
std::vector<std::int64_t> indices_of(const ir::Graph& g, const ir::Node& n, std::int64_t axis, std::int64_t extent) {
  std::vector<std::int64_t> out;
  if (n.op == Op::slice) {
    const auto d = static_cast<std::size_t>(axis);
    const auto steps = ir::get_ints(n.attrs, "steps");
    const std::int64_t step = steps.empty() ? 1 : steps[d], count = g.type(n.outputs[0]).shape[d];
    for (std::int64_t i = 0, at = ir::get_ints(n.attrs, "starts")[d]; i < count; ++i, at += step) out.push_back(at);
    return out;
  }
  if (ir::get_int(n.attrs, "axis") != axis || !g.is_constant(n.inputs[1])) return out;
  const ir::Tensor& t = g.payload(n.inputs[1]);
  if (t.dtype() == ir::DType::s64) out.assign(t.data<std::int64_t>().begin(), t.data<std::int64_t>().end());
  if (t.dtype() == ir::DType::s32) out.assign(t.data<std::int32_t>().begin(), t.data<std::int32_t>().end());
  for (std::int64_t& i : out) i += i < 0 ? extent : 0;
  return out;
}

struct NarrowConcat final : rewrite::Rule {
  std::string_view name() const override { return "narrow-concat"; }
  std::string_view equation() const override { return "slice or gather(concat(a, b)) ==> slice or gather(b), where a is not read"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids&) const override {
    const ir::Node n = g.node(id);
    if (n.op != Op::slice && n.op != Op::gather) return rewrite::no_match();
    const ir::Node cat = g.producer(n.inputs[0]);
    if (cat.op != Op::concat) return rewrite::no_match();
    const ir::Shape& whole = g.type(n.inputs[0]).shape;
    const std::int64_t axis = ir::get_int(cat.attrs, "axis");
    const auto d = static_cast<std::size_t>(axis);
    std::vector<std::int64_t> indices = indices_of(g, n, axis, whole[d]);
    if (indices.empty()) return rewrite::no_match();
    const auto [least, most] = std::minmax_element(indices.begin(), indices.end());
    if (*least < 0 || *most >= whole[d]) return rewrite::no_match();
    // Where each part begins, before and after; -1: it goes. Between parts that stay a slice keeps all, so that its step stays a
    // step.
    std::vector<ir::ValueId> kept;
    std::vector<std::int64_t> moved(indices.size());
    std::int64_t begin = 0, now = 0;
    for (const ir::ValueId part : cat.inputs) {
      const std::int64_t end = begin + g.type(part).shape[d];
      const auto inside = [&](std::int64_t i) { return begin <= i && i < end; };
      const bool between = n.op == Op::slice && *least < end && begin <= *most;
      const bool read = between || std::any_of(indices.begin(), indices.end(), inside);
      for (std::size_t i = 0; i < indices.size() && read; ++i) {
        if (inside(indices[i])) moved[i] = indices[i] - begin + now;
      }
      if (read) kept.push_back(part), now += end - begin;
      begin = end;
    }
    if (kept.size() == cat.inputs.size() || kept.empty()) return rewrite::no_match();
    ir::ValueId data = kept[0];
    if (kept.size() > 1) data = ir::add_inferred(g, Op::concat, kept, cat.attrs, cat.origin);
    std::set<std::string> origin = n.origin;
    origin.insert(cat.origin.begin(), cat.origin.end());
    ir::ValueId to = data;
    if (n.op == Op::slice) {
      ir::Attrs attrs = n.attrs;
      auto starts = ir::get_ints(attrs, "starts"), ends = ir::get_ints(attrs, "ends");
      const auto steps = ir::get_ints(attrs, "steps");
      const std::int64_t step = steps.empty() ? 1 : steps[d];
      starts[d] = moved.front();
      ends[d] = moved.back() + (step > 0 ? 1 : -1);  // one spelling, whatever was cut off
      attrs["starts"] = std::move(starts);
      attrs["ends"] = std::move(ends);
      const bool all = step == 1 && g.type(n.outputs[0]).shape == g.type(data).shape;
      if (!all) to = ir::add_inferred(g, Op::slice, {data}, std::move(attrs), std::move(origin));
    } else {
      ir::Tensor t(ir::DType::s64, g.payload(n.inputs[1]).shape());
      std::copy(moved.begin(), moved.end(), t.mutable_data<std::int64_t>().begin());
      to = ir::add_inferred(g, Op::gather, {data, g.add_constant(std::move(t))}, n.attrs, std::move(origin));
    }
    substitute(g, n.outputs[0], to, /*join_origin=*/to == data);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& narrow_concat() {
  static const NarrowConcat law;
  return law;
}

}  // namespace octavo::quant
