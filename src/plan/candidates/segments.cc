#include "plan/candidates/segments.h"

#include <cstring>
#include <vector>

#include "base/causes/plan_candidates.h"
#include "plan/regions/epilogue.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Grids;
using ir::Node;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

/// Neighbouring operands of the concatenation on equal grids.
struct Segment {
  std::vector<ValueId> parts;
  std::int64_t begin = 0, channels = 0;
};
std::vector<Segment> segments_of(const Graph& g, const Grids& grids, const Node& concat) {
  std::vector<Segment> out;
  std::int64_t at = 0;
  for (const ValueId v : concat.inputs) {
    const std::int64_t c = g.type(v).shape[1];
    const bool same = !out.empty() && *code_quantizer(g, grids, out.back().parts[0]) == *code_quantizer(g, grids, v);
    if (!same) out.push_back({{}, at, 0});
    out.back().parts.push_back(v);
    out.back().channels += c;
    at += c;
  }
  return out;
}

/// Input channels [begin, begin + count) of weights [O, C, kh, kw].
Tensor channels_of(const Tensor& w, std::int64_t begin, std::int64_t count) {
  ir::Shape dims = w.shape();
  dims[1] = count;
  Tensor out(w.dtype(), dims);
  const std::int64_t inner = ir::count(w.shape()) / w.shape()[0] / w.shape()[1] * static_cast<std::int64_t>(ir::size_of(w.dtype()));
  for (std::int64_t o = 0; o < dims[0]; ++o) {
    std::memcpy(out.mutable_bytes().data() + o * count * inner, w.bytes().data() + (o * w.shape()[1] + begin) * inner,
                static_cast<std::size_t>(count * inner));
  }
  return out;
}

}  // namespace

std::optional<Reason> why_no_segments(const Graph& g, const Grids& grids, ir::NodeId id) {
  const Node& n = g.node(id);
  if (n.op != Op::conv) return because<cause::not_a_convolution>();
  const Node& concat = g.producer(n.inputs[0]);
  if (concat.op != Op::concat || ir::get_int(concat.attrs, "axis") != 1) return because<cause::input_not_channel_concat>();
  if (ir::classify_anchor(g, grids, id).integer) return because<cause::integer_already>();
  if (ir::get_int(n.attrs, "group", 1) != 1) return because<cause::convolution_has_groups>(ir::get_int(n.attrs, "group", 1));
  if (!g.is_constant(n.inputs[1]) || !g.producer(n.inputs[1]).quantizer || g.payload(n.inputs[1]).dtype() != ir::DType::s8)
    return because<cause::weights_not_coded_constant>();
  const auto& wq = *g.producer(n.inputs[1]).quantizer;
  if (!wq.per_tensor() && wq.axis != 0) return because<cause::weights_quantized_along>(wq.axis);
  for (const ValueId v : concat.inputs) {
    const auto q = code_quantizer(g, grids, v);
    if (!q || !q->per_tensor()) return because<cause::part_off_grid>(g.value(v).name);
    if (g.is_constant(v)) return because<cause::part_is_constant>(g.value(v).name);
  }
  return std::nullopt;
}

void make_segments(Graph& g, const Grids& grids, ir::NodeId id) {
  const Node n = g.node(id);
  const Node concat = g.producer(n.inputs[0]);
  const ir::TensorType result = g.type(n.outputs[0]);
  const Tensor w = g.payload(n.inputs[1]);
  const auto wq = g.producer(n.inputs[1]).quantizer;
  ValueId sum = ir::kNone;
  for (const Segment& s : segments_of(g, grids, concat)) {
    ValueId x = s.parts[0];
    if (s.parts.size() > 1) x = ir::add_inferred(g, Op::concat, s.parts, {{"axis", std::int64_t{1}}}, concat.origin);
    const ValueId part = g.add_constant(channels_of(w, s.begin, s.channels), g.value(n.inputs[1]).name, wq);
    std::vector<ValueId> in{x, part};
    if (sum == ir::kNone && n.inputs.size() > 2 && n.inputs[2] != ir::kNone) in.push_back(n.inputs[2]);
    const ValueId y = g.add(Op::conv, in, result, n.attrs, n.origin);
    sum = sum == ir::kNone ? y : g.add(Op::add, {y, sum}, result, {}, n.origin);
  }
  g.replace_uses(n.outputs[0], sum);
  g.remove_dead();
}

}  // namespace octavo::plan
