// drop-integer-cast:  cast_f32(cast_s32(y)) ==> y, where y holds whole numbers
//   Why    ConvInteger and MatMulInteger have int32 results, and their scaling is float. Conversions of the sums to integers and
//          back would be two passes over memory, and would separate scale, bias and activation from the region that computes the
//          sums.
//   Exact  bit for bit: a float that is a whole number within int32 is that integer, and the integer is that float; y is never -0.
//   Needs  y is an integer convolution or product of codes with scale 1, 8-bit codes as floats, a constant of whole numbers, or sums,
//          differences and products of such, that stays below 2^30. Not products alone: they may be -0.
//   Order  after the laws, which show that a convolution is integer. The cast to int32 goes if nothing else reads it.
#include <algorithm>
#include <cmath>
#include <optional>

#include "ir/grid.h"
#include "passes/rules.h"
#include "quant/codes.h"

namespace octavo::passes {
namespace {

using ir::DType;
using ir::Op;

/// What is known of a value of whole numbers: it is at most so large, and it may be -0.
struct Whole {
  double most = 0;
  bool minus_zero = false;
};

constexpr double kMost = 1 << 30;
constexpr int kDeepest = 8;  // operators looked through

std::optional<Whole> whole_constant(const ir::Node& n) {
  if (n.quantizer || n.payload.dtype() != DType::f32) return std::nullopt;
  Whole out;
  for (const float v : n.payload.data<float>()) {
    if (!(std::abs(v) < kMost) || v != std::trunc(v)) return std::nullopt;
    out.most = std::max<double>(out.most, std::abs(v));
    out.minus_zero = out.minus_zero || (v == 0 && std::signbit(v));
  }
  return out;
}

/// How many products meet in a sum.
double terms_of(const ir::Node& n, const ir::Tensor& w) {
  const std::int64_t channels = w.shape()[n.op == Op::conv ? 0 : 1];
  return static_cast<double>(w.size()) / static_cast<double>(std::max<std::int64_t>(channels, 1));
}

/// The sums of a convolution or product of two constants of whole numbers, or of codes where the scales are all 1. Sums of whole floats are
/// whole even where they are rounded.
std::optional<Whole> whole_sums(const ir::Graph& g, const ir::Grids& grids, ir::NodeId id) {
  const ir::Node& n = g.node(id);
  if (n.inputs.size() > 2 && n.inputs[2] != ir::kNone) return std::nullopt;
  if (g.is_constant(n.inputs[0]) && g.is_constant(n.inputs[1])) {
    const auto x = whole_constant(g.producer(n.inputs[0])), w = whole_constant(g.producer(n.inputs[1]));
    if (!x || !w) return std::nullopt;
    return Whole{terms_of(n, g.payload(n.inputs[1])) * x->most * w->most, true};
  }
  const ir::IntegerAnchor a = ir::classify_anchor(g, grids, id);
  if (!a.integer) return std::nullopt;
  const auto ones = [](const ir::Quantizer& q) {
    return q.arith == DType::f32 && std::all_of(q.scale.begin(), q.scale.end(), [](float s) { return s == 1.0F; });
  };
  if (!ones(a.x) || !ones(a.w)) return std::nullopt;
  const ir::Tensor& w = g.payload(n.inputs[1]);
  double largest = 0, zero = 0;
  for (std::int64_t i = 0; i < w.size(); ++i) largest = std::max(largest, std::abs(w.at(i)));
  for (const std::int32_t z : a.w.zero_point) zero = std::max<double>(zero, std::abs(z));
  return Whole{terms_of(n, w) * 510 * (largest + zero), false};
}

std::optional<Whole> whole(const ir::Graph& g, const ir::Grids& grids, ir::ValueId v, int depth) {
  const ir::NodeId id = g.value(v).producer;
  const ir::Node& n = g.node(id);
  if (depth > kDeepest || g.type(v).dtype != DType::f32) return std::nullopt;
  std::optional<Whole> out;
  switch (n.op) {
    case Op::constant: out = whole_constant(n); break;
    case Op::conv:
    case Op::gemm: out = whole_sums(g, grids, id); break;
    case Op::cast:
      if (ir::is_int8(g.type(n.inputs[0]).dtype)) out = Whole{255, false};
      break;
    case Op::add:
    case Op::sub:
    case Op::mul: {
      const auto a = whole(g, grids, n.inputs[0], depth + 1), b = whole(g, grids, n.inputs[1], depth + 1);
      if (!a || !b) break;
      if (n.op == Op::mul) out = Whole{a->most * b->most, true};
      // A difference is -0 only for -0 - 0, a sum only for -0 + -0.
      if (n.op == Op::sub) out = Whole{a->most + b->most, a->minus_zero};
      if (n.op == Op::add) out = Whole{a->most + b->most, a->minus_zero && b->minus_zero};
      break;
    }
    default: break;
  }
  if (out && out->most >= kMost) return std::nullopt;
  return out;
}

struct DropIntegerCast final : rewrite::Rule {
  std::string_view name() const override { return "drop-integer-cast"; }
  std::string_view equation() const override { return "cast_f32(cast_s32(y)) ==> y, where y holds whole numbers"; }

  rewrite::Outcome apply(ir::Graph& g, ir::NodeId id, const ir::Grids& grids) const override {
    const ir::Node& n = g.node(id);
    if (n.op != Op::cast || g.type(n.outputs[0]).dtype != DType::f32) return rewrite::no_match();
    const ir::Node& inner = g.producer(n.inputs[0]);
    if (inner.op != Op::cast || g.type(inner.outputs[0]).dtype != DType::s32) return rewrite::no_match();
    const ir::ValueId y = inner.inputs[0];
    const auto known = whole(g, grids, y, 0);
    if (!known || known->minus_zero) return rewrite::no_match();
    quant::substitute(g, n.outputs[0], y);
    return rewrite::applied();
  }
};

}  // namespace

const rewrite::Rule& drop_integer_cast() {
  static const DropIntegerCast rule;
  return rule;
}

}  // namespace octavo::passes
