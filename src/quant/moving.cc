#include "quant/moving.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/causes/quant.h"
#include "quant/codes.h"
#include "quant/rules.h"

namespace octavo::quant {

using ir::Graph;
using ir::Node;
using ir::Quantizer;
using ir::ValueId;

float apply_label(const Label& label, float x, std::int64_t channel) {
  const Quantizer& q = label.q;
  switch (label.kind) {
    case Label::Kind::view: return ir::view_one(q, x, channel);
    case Label::Kind::dequantize:
      return ir::dequantize_one(static_cast<std::int32_t>(x), q.scale_at(channel), q.zero_at(channel), q.arith);
    case Label::Kind::recode: break;
  }
  const Quantizer& from = *label.from;
  const std::int32_t code = ir::quantize_one(x, from.scale_at(channel), from.zero_at(channel), from.lo(), from.hi(), from.arith);
  return ir::dequantize_one(code, q.scale_at(channel), q.zero_at(channel), q.arith);
}

std::string to_string(const Label& label) {
  if (label.kind == Label::Kind::recode) return fmt::format("{} read as {}", ir::to_string(*label.from), ir::to_string(label.q));
  return ir::to_string(label.q);
}

rewrite::Outcome MovingLaw::apply(Graph& g, ir::NodeId id, const ir::Grids&) const {
  if (g.node(id).op != ir::Op::view || g.producer(g.node(id).inputs[0]).op != op()) return rewrite::no_match();
  const ir::NodeId below = g.value(g.node(id).inputs[0]).producer;
  const Label label{Label::Kind::view, *g.node(id).quantizer, std::nullopt};
  const Move moved = push(g, g.node(below), label);
  if (!moved) return rewrite::refuse(moved.error());

  std::vector<ValueId> operands = g.node(below).inputs;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!moved->operands[i]) continue;
    const ir::TensorType type = g.type(operands[i]);
    operands[i] = g.add_quantizer(ir::Op::view, operands[i], *moved->operands[i], type, g.node(id).origin);
  }
  const ValueId result = copy_moved(g, below, *moved, std::move(operands));
  substitute(g, g.node(id).outputs[0], result, /*join_origin=*/false);
  return rewrite::applied();
}

const MovingLaw* find_move(ir::Op op) {
  for (const MovingLaw* law : moving_laws()) {
    if (law->op() == op) return law;
  }
  return nullptr;
}

ValueId copy_moved(Graph& g, ir::NodeId m, const Moved& moved, std::vector<ValueId> operands) {
  return ir::add_inferred(g, g.node(m).op, std::move(operands), moved.attrs, g.node(m).origin);
}

Moved on_operands(const Node& m, const Label& label, int axis, const std::vector<std::size_t>& slots) {
  Quantizer q = label.q;
  q.axis = q.per_tensor() ? -1 : axis;
  Moved moved{std::vector<std::optional<Quantizer>>(m.inputs.size()), m.attrs};
  for (std::size_t i = 0; i < m.inputs.size(); ++i) {
    if (slots.empty() || std::find(slots.begin(), slots.end(), i) != slots.end()) moved.operands[i] = q;
  }
  return moved;
}

std::optional<Reason> not_increasing(const Label& label) {
  for (const Quantizer* q : {&label.q, label.from ? &*label.from : nullptr}) {
    if (q == nullptr) continue;
    for (const float scale : q->scale) {
      if (!(scale > 0)) return because<cause::scale_not_positive>(scale);
    }
  }
  return std::nullopt;
}

Move push_select(const Graph& g, const Node& m, const Label& label, const std::vector<std::size_t>& slots) {
  Moved moved = on_operands(m, label, -1, slots);
  if (label.q.per_tensor()) return moved;
  const auto rank = static_cast<int>(g.type(m.outputs[0]).shape.size());
  for (const std::size_t slot : slots) {
    const ir::Shape& shape = g.type(m.inputs[slot]).shape;
    const int axis = label.q.axis - (rank - static_cast<int>(shape.size()));
    if (axis < 0 || shape[static_cast<std::size_t>(axis)] != static_cast<std::int64_t>(label.q.entries()))
      return tl::unexpected(because<cause::axis_broadcast>(label.q.axis, slot, ir::to_string(shape)));
    moved.operands[slot]->axis = axis;
  }
  return moved;
}

bool adds_constant(const Node& pad) {
  const auto pads = ir::get_ints(pad.attrs, "pads");
  return ir::get_text(pad.attrs, "mode", "constant") == "constant" &&
         std::any_of(pads.begin(), pads.end(), [](std::int64_t p) { return p > 0; });
}

Move push_reduce(const Graph& g, const Node& m, const Label& label) {
  if (auto why = not_increasing(label)) return tl::unexpected(*why);
  if (label.q.per_tensor()) return on_operands(m, label, -1);
  const ir::Shape& in = g.type(m.inputs[0]).shape;
  const auto rank = static_cast<std::int64_t>(in.size());
  const std::vector<std::int64_t> axes = ir::get_ints(m.attrs, "axes");
  const bool keep = ir::get_int(m.attrs, "keepdims", 1) != 0;
  int out_axis = 0;
  for (std::int64_t i = 0; i < rank; ++i) {
    const bool reduced = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (reduced && !keep) continue;
    if (out_axis == label.q.axis) {
      if (reduced) return tl::unexpected(because<cause::axis_reduced>(label.q.axis));
      return on_operands(m, label, static_cast<int>(i));
    }
    ++out_axis;
  }
  return tl::unexpected(because<cause::axis_reduced>(label.q.axis));
}

}  // namespace octavo::quant
