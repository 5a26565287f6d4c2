#include "cpu/stages/piece.h"

#include <algorithm>

namespace octavo::cpu::staged {

using region::StoreId;
using region::TensorRef;

TensorRef between_of(const Region& r, StoreId id) {
  const Stage& s = r.stages[id.stage];
  TensorRef t = s.stores[id.store];
  const ir::Shape& d = s.space;
  t.buffer = 1 << 30;
  t.offset = 0;
  t.dims = d;
  t.strides = {d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]};
  return t;
}

namespace {

/// A tensor that a stage reads: from scratch as scratch holds it, with what the reader knows of its values.
void take_from_scratch(const Region& whole, std::size_t stage, TensorRef& t) {
  const auto from = region::forwarded_from(whole, stage, t);
  if (!from) return;
  TensorRef between = between_of(whole, *from);
  between.quantizer = t.quantizer;
  t = std::move(between);
}

/// What the reader of a forwarded store knows of its values: a kernel may store what only it reads accordingly.
std::optional<ir::Quantizer> quantizer_of_reader(const Region& whole, StoreId id) {
  for (const region::StageEdge& e : region::edges_of(whole)) {
    if (e.from == id) return region::input_of(whole.stages[e.reader], e.input).quantizer;
  }
  return std::nullopt;
}

}  // namespace

Piece piece_of(const Region& whole, const Plan& plan, std::size_t stage, const Slab& slab) {
  Piece p;
  p.region.name = fmt::format("{}, stage {}", whole.name, stage);
  Stage s = whole.stages[stage];
  p.plan.threads = 1;
  const auto own = [&](TensorRef& r, std::int64_t height) {
    const bool kept = static_cast<std::size_t>(r.buffer) < plan.buffers.size();
    region::Buffer b;
    if (kept) b = plan.buffers[static_cast<std::size_t>(r.buffer)];
    if (!kept) b.bytes = height * r.strides[2] * static_cast<std::int64_t>(ir::size_of(r.dtype));
    b.binding = -1;
    if (b.kind == region::BufferKind::output) b.kind = region::BufferKind::input;  // no slack around it, whatever the name
    if (height >= 0) {
      r.dims[0] = 1;
      r.dims[2] = r.dims[2] == 1 && r.strides[2] == 0 ? 1 : height;
      r.offset = 0;
    }
    r.buffer = static_cast<region::BufferId>(p.plan.buffers.size());
    p.plan.buffers.push_back(std::move(b));
  };
  for (std::size_t j = 0; j < s.stores.size(); ++j) {
    if (region::leaves(whole, {stage, j})) continue;
    s.stores[j] = between_of(whole, {stage, j});
    s.stores[j].quantizer = quantizer_of_reader(whole, {stage, j});
  }
  for (auto& o : s.operands) take_from_scratch(whole, stage, o.ref);
  for (TensorRef& r : s.anchor.inputs) take_from_scratch(whole, stage, r);
  if (!s.anchor.none()) own(s.anchor.inputs[0], slab.in_rows);
  for (auto& o : s.operands) own(o.ref, slab.rows);
  for (TensorRef& r : s.stores) own(r, slab.rows);
  if (s.anchor.weights) own(*s.anchor.weights, -1);
  s.space[0] = 1;
  s.space[2] = slab.rows;
  if (!s.anchor.none()) {
    ir::Shape& pads = s.anchor.as<ir::Window>().pads;
    pads[0] = slab.top;
    pads[2] = slab.bottom;
  }
  p.region.stages.push_back(std::move(s));
  return p;
}

namespace {

Reasons why_no_row_tiles(const Stage& s) {
  if (s.space.size() != 4 || (!s.anchor.none() && (s.anchor.inputs.size() != 1 || s.anchor.inputs[0].dims.size() != 4)))
    return unmet("rank of the result", s.space.size(), "4, with one input of rank 4");
  if (ir::count(s.space) == 0) return unmet("elements", 0, "some");
  for (const auto& o : s.operands) {
    if (!o.div.empty() && (o.div[0] != 1 || o.div[2] != 1))
      return unmet("repetition of an operand along the height", o.div[2], "1");
  }
  for (const auto& o : s.operands) {
    if (o.ref.dims.size() == 4 && o.ref.dims[2] == 1 && o.ref.strides[2] != 0 && s.space[2] > 1)
      return unmet("row stride of an operand of one row", o.ref.strides[2], "0");
  }
  for (const TensorRef& t : s.stores) {
    if (t.dims != s.space || std::any_of(t.strides.begin(), t.strides.end(), [](std::int64_t d) { return d < 0; }))
      return unmet("store", "backwards, or of a part", "of the whole result");
  }
  if (s.anchor.none()) return {};
  const auto* w = std::get_if<ir::Window>(&s.anchor.facts);
  if (w == nullptr) return unmet("operator", ir::name_of(s.anchor.op), "one with a window");
  const Vertical v = vertical(s);
  if (const std::int64_t most = std::max(v.pad, w->after(0)); most >= (v.kernel - 1) * v.dilation + 1)
    return unmet("rows of padding", most, "fewer than the window has");
  return {};
}

}  // namespace

Reasons why_no_row_tiles(const Region& r) {
  if (r.stages.size() > kMostStages) return unmet("stages", r.stages.size(), fmt::format("at most {}", kMostStages));
  for (const Stage& s : r.stages) {
    if (Reasons why = why_no_row_tiles(s); !why.empty()) return why;
    if (s.space[0] != r.stages[0].space[0])
      return unmet("images of a stage", s.space[0], fmt::format("{}, as the first", r.stages[0].space[0]));
  }
  if (const Status graph = region::check_stages(r); !graph) return refusal_of(graph.error());
  const auto edges = region::edges_of(r);
  for (const region::StageEdge& e : edges) {
    const Stage& s = r.stages[e.reader];
    const std::size_t anchors = s.anchor.inputs.size();
    const bool repeats = e.input >= anchors && std::any_of(s.operands[e.input - anchors].div.begin(),
                                                           s.operands[e.input - anchors].div.end(), [](auto d) { return d != 1; });
    if (repeats) return unmet("a result that a stage reads", "repeated", "read as it is stored");
  }
  for (std::size_t k = 0; k < r.stages.size(); ++k) {
    if (std::none_of(edges.begin(), edges.end(), [&](const auto& e) { return e.from.stage == k || e.reader == k; }))
      return unmet("connections of a stage", 0, "1 or more: it reads another stage's result, or another stage reads its result");
  }
  return {};
}

}  // namespace octavo::cpu::staged
