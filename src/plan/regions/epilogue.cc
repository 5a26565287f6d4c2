// One class, past 400 lines: every operation appends to one program by what is known of its operands.
#include "plan/regions/epilogue.h"

#include <algorithm>
#include <cmath>

#include "plan/regions/group.h"
#include "plan/regions/narrow_marks.h"
#include "program/math.h"

namespace octavo::plan {

using ir::Node;
using ir::Op;
using ir::Quantizer;
using ir::ValueId;
using POp = program::Op;

std::optional<Quantizer> code_quantizer(const ir::Graph& g, const ir::Grids& grids, ValueId v) {
  const Quantizer* q = grids.get(v);
  if (!q || !ir::is_int8(q->type) || !ir::is_float(g.type(v).dtype) || !ir::injective(*q)) return std::nullopt;
  return ir::as_u8(*q);
}

Repr preferred(const ir::Graph& g, const ir::Grids& grids, ValueId v) {
  return !g.is_constant(v) && code_quantizer(g, grids, v) ? Repr::codes : Repr::raw;
}

ir::Tensor decoded(const Node& constant) {
  const ir::Tensor& t = constant.payload;
  const Quantizer& q = *constant.quantizer;
  ir::Tensor out(ir::DType::f32, t.shape());
  const std::int64_t step = q.per_tensor() ? 1 : ir::dense_strides(t.shape())[static_cast<std::size_t>(q.axis)];
  for (std::int64_t i = 0; i < t.size(); ++i) {
    const std::int64_t c = q.per_tensor() ? 0 : (i / step) % t.shape()[static_cast<std::size_t>(q.axis)];
    out.mutable_data<float>()[static_cast<std::size_t>(i)] =
        ir::dequantize_one(static_cast<std::int32_t>(t.at(i)), q.scale_at(c), q.zero_at(c), q.arith);
  }
  return out;
}

void EpilogueBuilder::set_acc_float(ValueId v) {
  states_[v].f = program.push(POp::acc_f);
}

void EpilogueBuilder::set_acc_codes(ValueId v, const Quantizer& q) {
  State& s = states_[v];
  s.code = program.push(POp::acc_i);
  s.q = q;
  acc_is_code = true;
}

// A vector along one dimension of the space, as a broadcast constant operand; one value when all are equal.
int EpilogueBuilder::channel_constant(const std::vector<float>& values, int axis) {
  if (std::all_of(values.begin(), values.end(),
                  [&](float v) { return std::bit_cast<std::int32_t>(v) == std::bit_cast<std::int32_t>(values[0]); })) {
    return program.imm_f(values[0]);
  }
  ir::Shape shape(space_.size(), 1);
  shape[static_cast<std::size_t>(axis)] = static_cast<std::int64_t>(values.size());
  return program.load(POp::load_f, constant_load(ir::Tensor::of<float>(shape, values)));
}

int EpilogueBuilder::channel_constant_i(const std::vector<std::int32_t>& values, int axis) {
  if (std::all_of(values.begin(), values.end(), [&](std::int32_t v) { return v == values[0]; })) return program.imm_i(values[0]);
  ir::Shape shape(space_.size(), 1);
  shape[static_cast<std::size_t>(axis)] = static_cast<std::int64_t>(values.size());
  return program.load(POp::load_i, constant_(ir::Tensor::of<std::int32_t>(shape, values)));
}

int EpilogueBuilder::rounded(int value, ir::DType arith) {
  if (arith == ir::DType::f16) return program.push(POp::to_f16, value);
  if (arith == ir::DType::bf16) return program.push(POp::to_bf16, value);
  return value;
}

void EpilogueBuilder::set_acc_product(ValueId v, float unit) {
  states_[v].f = program.push(POp::mul, program.push(POp::i2f, program.push(POp::acc_i)), program.imm_f(unit));
}

void EpilogueBuilder::set_acc_weighted(const Node& anchor, const ir::IntegerAnchor& kind) {
  State& s = states_[anchor.outputs[0]];
  const auto channels = space_[1];
  int acc = program.push(POp::acc_i);
  const bool has_bias = anchor.inputs.size() > 2 && anchor.inputs[2] != ir::kNone;
  if (has_bias && kind.bias_in_acc) {
    const ir::Tensor& codes = g_.payload(anchor.inputs[2]);
    std::vector<std::int32_t> bias(static_cast<std::size_t>(channels));
    for (std::int64_t c = 0; c < channels; ++c) {
      bias[static_cast<std::size_t>(c)] = codes.data<std::int32_t>()[static_cast<std::size_t>(codes.size() == 1 ? 0 : c)];
    }
    acc = program.push(POp::add_i, acc, channel_constant_i(bias, 1));
  }
  if (g_.type(anchor.outputs[0]).dtype == ir::DType::s32) {
    s.raw = acc;
    return;
  }
  const int value = program.push(POp::i2f, acc);
  std::vector<float> scale(static_cast<std::size_t>(channels));
  for (std::int64_t c = 0; c < channels; ++c) {
    scale[static_cast<std::size_t>(c)] = kind.unit(c, channels);
  }
  const int factor = channel_constant(scale, 1);
  if (!has_bias || kind.bias_in_acc) {
    s.f = program.push(POp::mul, value, factor);
    return;
  }
  s.f = program.push(POp::fma, value, factor, bias_of(anchor.inputs[2]));
}

int EpilogueBuilder::bias_of(ValueId v) {
  if (!g_.is_constant(v)) return program.load(POp::load_f, load_(v, Repr::raw));
  const Node& c = g_.producer(v);
  const ir::Tensor t = c.quantizer ? decoded(c) : c.payload.to_f32();
  if (t.size() == 1) return program.imm_f(t.data<float>()[0]);
  if (t.shape().size() > 1) return program.load(POp::load_f, constant_load(t));  // gemm: broadcast over [M,N]
  return channel_constant({t.data<float>().begin(), t.data<float>().end()}, 1);
}

void EpilogueBuilder::set_acc_float_bias(const Node& anchor) {
  State& s = states_[anchor.outputs[0]];
  s.f = program.push(POp::acc_f);
  if (anchor.inputs.size() > 2 && anchor.inputs[2] != ir::kNone) s.f = program.push(POp::add, s.f, bias_of(anchor.inputs[2]));
}

void EpilogueBuilder::set_acc_sum(const Node& anchor, const Quantizer& x, const ir::Tensor& counts) {
  State& s = states_[anchor.outputs[0]];
  const int sum = program.push(POp::i2f, program.push(POp::acc_i));
  const int scaled = program.push(POp::mul, sum, program.imm_f(x.scale[0]));
  const int n =
      counts.size() == 1 ? program.imm_f(static_cast<float>(counts.at(0))) : program.load(POp::load_f, constant_load(counts));
  s.f = program.push(POp::div, scaled, n);
}

EpilogueBuilder::State& EpilogueBuilder::state(ValueId v) {
  const auto found = states_.find(v);
  if (found != states_.end()) return found->second;
  State& s = states_[v];
  const Node& p = g_.producer(v);
  const bool whole = ir::is_int8(p.payload.dtype()) || p.payload.dtype() == ir::DType::s32;
  if (p.op == Op::constant && !p.quantizer && whole) {  // summands of int32; plain codes: `code-constant` is switched off
    ir::Tensor codes(ir::DType::s32, p.payload.shape());
    for (std::int64_t i = 0; i < codes.size(); ++i) {
      codes.mutable_data<std::int32_t>()[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(p.payload.at(i));
    }
    s.raw = codes.size() == 1 ? program.imm_i(codes.data<std::int32_t>()[0]) : program.load(POp::load_i, constant_(codes));
  } else if (g_.type(v).dtype == ir::DType::boolean) {
    if (p.op == Op::constant) {
      ir::Tensor truth(ir::DType::f32, p.payload.shape());
      for (std::int64_t i = 0; i < truth.size(); ++i)
        truth.mutable_data<float>()[static_cast<std::size_t>(i)] = p.payload.at(i) != 0 ? 1.0F : 0.0F;
      s.f = truth.size() == 1 ? program.imm_f(truth.data<float>()[0]) : program.load(POp::load_f, constant_(truth));
    } else {  // anything but 0 is true
      s.f = program.push(POp::i2f, program.push(POp::min_i, program.load(POp::load_i, load_(v, Repr::raw)), program.imm_i(1)));
    }
  } else if (p.op == Op::constant) {
    ir::Tensor t = p.quantizer ? decoded(p) : p.payload;
    t = t.to_f32();
    s.f = t.size() == 1 ? program.imm_f(t.data<float>()[0]) : program.load(POp::load_f, constant_load(t));
  } else if (ir::is_int8(g_.type(v).dtype) || g_.type(v).dtype == ir::DType::s32) {
    s.raw = program.load(POp::load_i, load_(v, Repr::raw));
  } else if (const auto q = code_quantizer(g_, grids_, v)) {
    s.code = program.load(POp::load_i, load_(v, Repr::codes));
    s.q = q;
    if (!q->per_tensor())
      s.q->axis += static_cast<int>(space_.size() - g_.type(v).shape.size());  // broadcast along leading dimensions
  } else {
    s.f = program.load(POp::load_f, load_(held(g_, v), Repr::raw));
  }
  return s;
}

int EpilogueBuilder::dequantize(int code, const Quantizer& q) {
  int shifted = code;
  if (std::any_of(q.zero_point.begin(), q.zero_point.end(), [](std::int32_t z) { return z != 0; })) {
    shifted = program.push(POp::sub_i, code, channel_constant_i(q.zero_point, q.axis));
  }
  return rounded(program.push(POp::mul, program.push(POp::i2f, shifted), channel_constant(q.scale, q.axis)), q.arith);
}

// clamp(x / s, lo - zp, hi - zp), to the nearest even integer, + zp. Clamping before rounding is the same: the bounds are integers.
int EpilogueBuilder::quantize(int value, const Quantizer& q) {
  int t = rounded(program.push(POp::div, value, channel_constant(q.scale, q.axis)), q.arith);
  if (may_be_nan || !known_of(value).number) t = program.push(POp::nan0, t);
  std::vector<float> lo, hi;
  for (const std::int32_t z : q.zero_point) {
    lo.push_back(static_cast<float>(q.lo() - z));
    hi.push_back(static_cast<float>(q.hi() - z));
  }
  t = program.push(POp::max, t, channel_constant(lo, q.axis));
  t = program.push(POp::min, t, channel_constant(hi, q.axis));
  const int code = program.push(POp::f2i, t);
  if (std::all_of(q.zero_point.begin(), q.zero_point.end(), [](std::int32_t z) { return z == 0; })) return code;
  return program.push(POp::add_i, code, channel_constant_i(q.zero_point, q.axis));
}

int EpilogueBuilder::float_of(ValueId v) {
  State& s = state(v);
  if (s.f < 0 && s.code < 0) s.f = program.push(POp::i2f, s.raw);  // quantize takes int32 too
  if (s.f < 0) s.f = rounded(dequantize(s.code, *s.q), g_.type(v).dtype);
  return s.f;
}

// relu, clip, max, min on codes of one grid: selections among codes, exact.
bool EpilogueBuilder::code_minmax(const Node& node, const ir::Facts& facts, State& out) {
  const auto q = code_quantizer(g_, grids_, node.outputs[0]);
  if (!q || !q->per_tensor()) return false;
  const State& a = state(node.inputs[0]);
  if (a.code < 0 || !(*a.q == *q)) return false;
  int code = -1;
  const std::int32_t zp = q->zero_point[0];
  if (node.op == Op::relu) {
    code = program.push(POp::max_i, a.code, program.imm_i(zp));
  } else if (node.op == Op::clip) {
    const auto bound = [&](float x) { return ir::quantize_one(x, q->scale[0], zp, 0, 255, q->arith); };
    code = a.code;
    const auto [lo, hi] = std::get<ir::Clip>(facts);
    if (bound(static_cast<float>(lo)) > 0) code = program.push(POp::max_i, code, program.imm_i(bound(static_cast<float>(lo))));
    if (bound(static_cast<float>(hi)) < 255) code = program.push(POp::min_i, code, program.imm_i(bound(static_cast<float>(hi))));
  } else if (node.op == Op::max || node.op == Op::min) {
    const int a_code = a.code;  // state() below may move the map's nodes' contents, not the integer
    const State& b = state(node.inputs[1]);
    if (b.code < 0 || !(*b.q == *q)) return false;
    code = program.push(node.op == Op::max ? POp::max_i : POp::min_i, a_code, b.code);
  } else {
    return false;
  }
  out.code = code;
  out.q = q;
  return true;
}

Status EpilogueBuilder::compute(const Node& node) {
  const ValueId out = node.outputs[0];
  State s;
  program::ProgramOps ops{.p = program};
  switch (node.op) {
    case Op::view:
      s.q = ir::as_u8(*node.quantizer);
      s.code = quantize(float_of(node.inputs[0]), *s.q);
      break;
    case Op::quantize: s.raw = quantize(float_of(node.inputs[0]), *node.quantizer); break;
    case Op::dequantize: {
      s.q = ir::as_u8(*node.quantizer);
      s.code = state(node.inputs[0]).raw;
      if (node.quantizer->type == ir::DType::s8) s.code = program.push(POp::add_i, s.code, program.imm_i(128));
      break;
    }
    case Op::cast: {
      if (is_round_trip(g_, node)) {
        s.f = cut(float_of(g_.producer(node.inputs[0]).inputs[0]), g_.type(node.inputs[0]).dtype);
        break;
      }
      if (ir::is_int8(g_.type(node.inputs[0]).dtype) || g_.type(node.inputs[0]).dtype == ir::DType::s32) {
        const int raw = state(node.inputs[0]).raw;
        (g_.type(out).dtype == ir::DType::s32 ? s.raw : s.f) =
            g_.type(out).dtype == ir::DType::s32 ? raw : program.push(POp::i2f, raw);
        break;
      }
      s.f = float_of(node.inputs[0]);
      s.f = rounded(s.f, g_.type(out).dtype);
      break;
    }
    case Op::affine:
      s.f = ops.fma(float_of(node.inputs[0]),
                    channel_constant(std::vector<float>(g_.payload(node.inputs[1]).data<float>().begin(),
                                                        g_.payload(node.inputs[1]).data<float>().end()),
                                     1),
                    channel_constant(std::vector<float>(g_.payload(node.inputs[2]).data<float>().begin(),
                                                        g_.payload(node.inputs[2]).data<float>().end()),
                                     1));
      break;
    case Op::equal:
    case Op::less:
    case Op::less_equal:
    case Op::greater:
    case Op::greater_equal:
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_not:
    case Op::where: s.f = choose(node); break;
    default: {
      if (g_.type(out).dtype == ir::DType::s32) {
        const int a = state(node.inputs[0]).raw, b = state(node.inputs[1]).raw;
        s.raw = program.push(node.op == Op::add ? POp::add_i : node.op == Op::sub ? POp::sub_i : POp::mul_i, a, b);
        break;
      }
      OCTAVO_TRY(const ir::Facts facts, ir::facts_of(g_, node));
      if (code_minmax(node, facts, s)) break;
      if (node.inputs.size() == 1) {
        const int x = float_of(node.inputs[0]);
        ops.nan_free = known_of(x).number;
        ops.no_minus_zero = known_of(x).no_minus_zero;
        s.f = program::unary(ops, node.op, facts, x);
      } else {
        const int a = float_of(node.inputs[0]);
        const int b = float_of(node.inputs[1]);
        ops.nan_free = known_of(a).number && known_of(b).number;
        s.f = program::binary(ops, node.op, a, b);
      }
      s.f = rounded(s.f, g_.type(out).dtype);
    }
  }
  states_[out] = s;
  return {};
}

int EpilogueBuilder::constant_load(const ir::Tensor& t) {
  const int k = constant_(t);
  const auto values = t.data<float>();
  if (std::none_of(values.begin(), values.end(), [](float v) { return std::isnan(v); })) {
    const auto all_positive = std::all_of(values.begin(), values.end(), [](float v) { return v > 0; });
    if (constant_loads_.try_emplace(k, all_positive).second) known_.clear();  // an earlier load of it may be known now
  }
  return k;
}

EpilogueBuilder::Known EpilogueBuilder::known_of(int value) const {
  for (std::size_t v = known_.size(); v <= static_cast<std::size_t>(value); ++v) {  // instructions are only added
    const program::Instr& i = program.code[v];
    const auto arg = [&](std::size_t k) -> const Known& { return known_[static_cast<std::size_t>(i.args[k])]; };
    Known is;
    for (std::size_t k = 0; k < program::info(i.op).operands.size(); ++k)
      is.number = is.number && arg(k).number;  // bits of a NaN too
    switch (i.op) {
      case POp::acc_f: is.number = false; break;
      case POp::load_f: {
        const auto constant = constant_loads_.find(i.imm);
        is.number = constant != constant_loads_.end();
        is.positive = is.no_minus_zero = is.number && constant->second;
        break;
      }
      case POp::imm_f: {
        const auto c = std::bit_cast<float>(i.imm);
        is = {!std::isnan(c), !std::signbit(c), c > 0};
        break;
      }
      case POp::i2f: is = {true, true, false}; break;
      case POp::f2i: is.number = true; break;
      case POp::nan0: is = {true, arg(0).no_minus_zero, false}; break;
      case POp::sel_lt:
      case POp::sel_eq: is = {arg(2).number && arg(3).number, arg(2).no_minus_zero && arg(3).no_minus_zero, false}; break;
      case POp::max:
      case POp::min: is.no_minus_zero = arg(0).no_minus_zero && arg(1).no_minus_zero; break;
      case POp::add: is.no_minus_zero = arg(0).no_minus_zero || arg(1).no_minus_zero; break;
      case POp::div: is.no_minus_zero = arg(0).no_minus_zero && arg(1).positive; break;
      case POp::mul:
      case POp::fma:
        is.no_minus_zero = (arg(0).no_minus_zero && arg(1).positive) || (arg(1).no_minus_zero && arg(0).positive) ||
                           (i.op == POp::fma && arg(2).no_minus_zero);
        break;
      default: break;
    }
    known_.push_back(is);
  }
  return known_[static_cast<std::size_t>(value)];
}

/// A float as an integer of 8 or 16 bits: towards zero, saturating, NaN is 0; as a float again.
int EpilogueBuilder::cut(int value, ir::DType type) {
  program::ProgramOps ops{program};
  const bool small = ir::is_int8(type), is_signed = type == ir::DType::s8 || type == ir::DType::s16;
  const float most = is_signed ? (small ? 127.0F : 32767.0F) : (small ? 255.0F : 65535.0F), least = is_signed ? -most - 1 : 0.0F;
  const int x = program.push(POp::nan0, value);
  const int inside = ops.min(ops.max(x, ops.imm(least)), ops.imm(most));
  const int whole = ops.sel_lt(inside, ops.imm(0), ops.ceil(inside), ops.floor(inside));
  return ops.add(whole, ops.imm(0));  // an integer has no -0
}

/// Comparisons, logic and selections. Truth is 1.0 in a program, and a byte in memory.
int EpilogueBuilder::choose(const Node& node) {
  program::ProgramOps ops{program};
  const int a = float_of(node.inputs[0]);
  if (node.op == Op::logical_not) return ops.sub(ops.imm(1), a);
  const int b = float_of(node.inputs[1]), yes = ops.imm(1), no = ops.imm(0);
  switch (node.op) {
    case Op::equal: return ops.sel_eq(a, b, yes, no);
    case Op::less: return ops.sel_lt(a, b, yes, no);
    case Op::greater: return ops.sel_lt(b, a, yes, no);
    case Op::less_equal: return ops.sel_lt(a, b, yes, ops.sel_eq(a, b, yes, no));
    case Op::greater_equal: return ops.sel_lt(b, a, yes, ops.sel_eq(a, b, yes, no));
    case Op::logical_and: return ops.mul(a, b);
    case Op::logical_or: return ops.max(a, b);
    default: return ops.sel_eq(a, no, float_of(node.inputs[2]), b);  // where
  }
}

int EpilogueBuilder::stored(ValueId v, Repr r) {
  State& s = state(v);
  if (r == Repr::codes) {
    // On its grid, but reached through floats (an operator without a form on codes): encoding gives the code back exactly.
    if (s.code < 0) {
      s.q = code_quantizer(g_, grids_, v);
      s.code = quantize(float_of(v), *s.q);
    }
    return s.code;
  }
  if (s.raw >= 0) return s.raw;
  if (g_.type(v).dtype == ir::DType::boolean) return program.push(POp::f2i, float_of(v));
  return float_of(v);
}

}  // namespace octavo::plan
