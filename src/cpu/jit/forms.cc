#include "cpu/jit/forms.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "cpu/jit/rewritten.h"

namespace octavo::cpu::jit {
namespace {

using program::Op;

/// The codes that an operand can hold.
struct Range {
  std::int32_t first = 0, last = 0;
};
std::optional<Range> codes_of(const LoweredEpilogue& e, int v) {
  const Instr& in = e.code[static_cast<std::size_t>(v)];
  if (in.op != Op::load_i) return std::nullopt;
  const auto type = e.operands[static_cast<std::size_t>(in.imm)].dtype;
  if (type == ir::DType::u8) return Range{0, 255};
  if (type == ir::DType::s8) return Range{-128, 127};
  return std::nullopt;
}

/// An Add of two codes, requantized.
struct Addition {
  program::DequantizeSpan one, other;  ///< one.code is the computed code
  Range codes;                         ///< of the other
  Requant requant;                     ///< steps, zero and bounds
  [[nodiscard]] std::int32_t written(std::int32_t c1, std::int32_t c2) const {
    const float a = one.scale * static_cast<float>(c1 - one.zero), b = other.scale * static_cast<float>(c2 - other.zero);
    return requant.code_of(a + b);
  }
};

std::optional<Addition> find_addition(const LoweredEpilogue& e, int c1) {
  if (e.pack.sinks.empty()) return std::nullopt;
  const auto at = [&](int i) -> const Instr& { return e.code[static_cast<std::size_t>(i)]; };
  Addition out;
  out.requant.zero = e.pack.zero, out.requant.lo = e.pack.lo, out.requant.hi = e.pack.hi;
  int v = -1;
  if (!find_steps(e, e.pack.value, v, out.requant).empty() || out.requant.alpha < 1 || at(v).op != Op::add) return std::nullopt;
  const auto *one = span_to<program::DequantizeSpan>(e, at(v).args[0]), *other = span_to<program::DequantizeSpan>(e, at(v).args[1]);
  if (!one || !other) return std::nullopt;
  if (one->code != c1) std::swap(one, other);
  const auto codes = codes_of(e, other->code);
  if (one->code != c1 || !codes) return std::nullopt;
  out.one = *one, out.other = *other, out.codes = *codes;
  return out;
}

struct Fmas {
  float a = 0, b = 0, c = 0;
};

/// a, b and c near the quotients with which all pairs of codes give the written code.
std::optional<Fmas> find_fmas(const Addition& add, std::int32_t first, std::int32_t last) {
  double divisor = 1;
  for (const auto& s : add.requant.steps) {
    if (s.op == Op::div) divisor *= static_cast<double>(s.constant);
  }
  const double a = static_cast<double>(add.one.scale) / divisor, b = static_cast<double>(add.other.scale) / divisor;
  const double c = -a * add.one.zero - b * add.other.zero;
  const auto most = [](std::int32_t x, std::int32_t y) { return static_cast<double>(std::max(std::abs(x), std::abs(y))); };
  const double size = std::fabs(a) * (most(first, last) + std::abs(add.one.zero)) +
                      std::fabs(b) * (most(add.codes.first, add.codes.last) + std::abs(add.other.zero)) + std::fabs(c);
  if (!(size < 1e5) || !(std::fabs(a) > 1e-9) || !(std::fabs(b) > 1e-9)) return std::nullopt;
  // Either form rounds at most eight times, by half a unit of values up to `size`, and is varied by at most eight units. Where the
  // exact value is farther than that from the middle of two codes, both give the code it is nearest to.
  const double near = 0.5 - 24 * std::ldexp(size, -24);
  const double lowest = add.requant.first - add.requant.zero - 1, highest = add.requant.last - add.requant.zero + 1;
  std::vector<std::array<std::int32_t, 3>> close;  // c1, c2, the written code
  for (std::int32_t c1 = first; c1 <= last; ++c1) {
    const double line = a * c1 + c;
    for (std::int32_t c2 = add.codes.first; c2 <= add.codes.last; ++c2) {
      constexpr double kIntegers = 6755399441055744.0;  // 1.5 * 2^52
      const double exact = line + b * c2, off = exact - ((exact + kIntegers) - kIntegers);
      if (std::fabs(off) < near || exact < lowest || exact > highest) continue;
      close.push_back({c1, c2, add.written(c1, c2)});
      if (close.size() > 4096) return std::nullopt;
    }
  }
  const auto unit = [](double x) { return std::ldexp(1.0, std::ilogb(x) - 23); };
  for (const int dc : {0, 1, -1, 2, -2, 4, -4}) {
    for (const int da : {0, 1, -1, 2, -2}) {
      for (const int db : {0, 1, -1, 2, -2}) {
        const Fmas f{static_cast<float>(a + da * unit(a)), static_cast<float>(b + db * unit(b)),
                     static_cast<float>(c + dc * std::ldexp(size, -25))};
        const bool same = std::all_of(close.begin(), close.end(), [&](const auto& p) {
          const float t = std::fma(static_cast<float>(p[0]), f.a, std::fma(static_cast<float>(p[1]), f.b, f.c));
          return add.requant.code_of_rounded(t) == p[2];
        });
        if (same) return f;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

Reasons find_forms(const LoweredEpilogue& e, Forms& out) {
  out = Forms{};
  out.code = e.pack.value;
  Reasons why = find_requant(e, out.requant);
  if (why.empty()) return why;
  if (e.pack.sinks.empty()) return why;
  for (std::size_t i = 0; i < e.code.size(); ++i) {
    if (e.code[i].op != Op::f2i || static_cast<int>(i) == e.pack.value) continue;
    constexpr std::int32_t kMost = 1024;  // wider than any code
    Requant r;
    r.lo = -kMost, r.hi = kMost;
    if (!find_requant_of(e, static_cast<int>(i), r).empty() || r.first <= -kMost || r.last >= kMost) continue;
    out.requant = r;
    out.code = static_cast<int>(i);
    return {};
  }
  return why;
}

FormEpilogue form_epilogue(const LoweredEpilogue& e, const Forms& forms, Form form) {
  FormEpilogue result;
  LoweredEpilogue& out = result.epilogue;
  const Requant& r = forms.requant;
  out.outputs = e.outputs, out.tables = e.tables, out.stores = e.stores, out.columns = e.columns, out.pack = e.pack;
  Rewritten rest(e);
  const auto push = [&](const Instr& in) { return rest.push(in); };
  const int acc = push({Op::acc_i});
  int t = push({Op::i2f, {acc, -1, -1, -1}});
  const int m = push({Op::load_f, {-1, -1, -1, -1}, 0}), b = push({Op::load_f, {-1, -1, -1, -1}, 1});
  out.operands.assign(2, Stream{OperandAccess::channel, ir::DType::f32, -1});
  t = push({Op::fma, {t, m, b, -1}});
  if (form == Form::quotient) {
    const Quotient q = Quotient::of(r);
    const int low = push({Op::mul, {t, push(imm_f(q.low)), -1, -1}});
    t = push({Op::fma, {t, push(imm_f(q.high)), low, -1}});
  }
  if (r.alpha < 1) {
    const int alpha = push(imm_f(r.alpha));
    t = push({Op::max, {t, push({Op::mul, {t, alpha, -1, -1}}), -1, -1}});
  }
  const bool last = forms.code == e.pack.value;
  if (!last) {
    t = push({Op::max, {t, push(imm_f(static_cast<float>(r.first))), -1, -1}});
    t = push({Op::min, {t, push(imm_f(static_cast<float>(r.last))), -1, -1}});
  }
  const int code = push({Op::f2i, {t, -1, -1, -1}});
  if (last) {
    out.pack.value = code;
    out.pack.lo = r.first, out.pack.hi = r.last;
    out.code = std::move(rest).code();
    return result;
  }
  // The rest as written, behind the code.
  std::vector<int> operand(e.operands.size(), -1);
  const std::vector<char> live = needed_values(e, forms.code);
  rest.put(static_cast<std::size_t>(forms.code), code);
  for (std::size_t i = 0; i < e.code.size(); ++i) {
    if (live[i] == 0 || static_cast<int>(i) == forms.code) continue;
    if (e.code[i].op == Op::acc_i) {
      rest.put(i, acc);
      continue;
    }
    Instr in = rest.follow(e.code[i]);
    if (in.op == Op::load_i || in.op == Op::load_f) {
      int& to = operand[static_cast<std::size_t>(in.imm)];
      if (to < 0) {
        to = static_cast<int>(out.operands.size());
        out.operands.push_back(e.operands[static_cast<std::size_t>(in.imm)]);
        result.operands.push_back(in.imm);
      }
      in.imm = to;
    }
    rest.put(i, push(in));
  }
  out.spans = e.spans;
  std::move(rest).finish(out);
  if (!add_by_fmas(out, code, r.first, r.last)) fold_zero_points(out);
  return result;
}

Result<std::vector<ir::Tensor>> pack_forms(const ChannelValues& values, const Requant& r, const std::vector<LineBlock>& blocks,
                                           std::int64_t init_count) {
  OCTAVO_CHECK(values.check());
  ir::Tensor constants(ir::DType::f32, {2 * init_count}), taken(ir::DType::s32, {init_count / 16});
  auto* to = constants.mutable_data<float>().data();
  auto* flags = taken.mutable_data<std::int32_t>().data();
  for (const LineBlock& b : blocks) {
    const Quotient quotient = Quotient::of(r);
    // Of every channel, or of none: scale and bias of the fma that f gives.
    const auto every = [&](auto f) {
      for (std::size_t c = 0; c < b.limits.size(); ++c) {
        const std::int64_t channel = b.first_channel + static_cast<std::int64_t>(c);
        const std::optional<Line> line = f(values.scale(channel), values.bias(channel), b.limits[c]);
        if (!line) return false;
        const std::int64_t at = b.init + static_cast<std::int64_t>(c);
        to[at] = line->m, to[init_count + at] = line->b;
      }
      return true;
    };
    Form form = Form::written;
    if (every([&](float scale, float bias, std::int64_t limit) { return one_fma(r, scale, bias, limit); })) {
      form = Form::line;
    } else if (every([&](float scale, float bias, std::int64_t limit) {
                 return by_quotient(r, quotient, scale, bias, limit) ? std::optional(Line{scale, bias}) : std::nullopt;
               })) {
      form = Form::quotient;
    }
    flags[b.init / 16] = static_cast<std::int32_t>(form);
  }
  return std::vector<ir::Tensor>{std::move(constants), std::move(taken)};
}

int take_bias(const region::Stage& stage, const region::Plan& plan, LoweredEpilogue& e) {
  const bool floats = !stage.anchor.integer;
  const Op add = floats ? Op::add : Op::add_i, load_op = floats ? Op::load_f : Op::load_i, acc_op = floats ? Op::acc_f : Op::acc_i;
  int operand = -1;
  std::size_t sum = 0;
  for (std::size_t i = 0; i < e.code.size() && operand < 0; ++i) {
    if (e.code[i].op != add) continue;
    const Instr &a = e.code[static_cast<std::size_t>(e.code[i].args[0])], &b = e.code[static_cast<std::size_t>(e.code[i].args[1])];
    const Instr* load = a.op == acc_op && b.op == load_op ? &b : b.op == acc_op && a.op == load_op ? &a : nullptr;
    if (load != nullptr) operand = load->imm, sum = i;
  }
  if (operand < 0) return -1;
  const auto& ref = stage.operands[static_cast<std::size_t>(operand)].ref;
  const Stream& s = e.operands[static_cast<std::size_t>(operand)];
  if (plan.buffers[static_cast<std::size_t>(ref.buffer)].kind != region::BufferKind::constant ||
      ref.dtype != (floats ? ir::DType::f32 : ir::DType::s32) ||
      (s.access != OperandAccess::channel && s.access != OperandAccess::uniform)) {
    return -1;
  }
  int acc = -1;
  for (std::size_t i = 0; i < e.code.size(); ++i) {
    if (e.code[i].op == acc_op) acc = static_cast<int>(i);
    for (const int a : e.code[i].args) {  // nothing else sees the sum without it
      if (a >= 0 && e.code[static_cast<std::size_t>(a)].op == acc_op && i != sum) return -1;
    }
  }
  for (std::size_t j = 0; j < e.outputs.size(); ++j) {
    const int v = e.pack.packs(j) ? e.pack.value : e.outputs[j].value;
    if (v == acc || (!floats && v == static_cast<int>(sum))) return -1;
  }
  for (auto& o : e.outputs) {  // sums of floats are stored as they are
    if (o.value == static_cast<int>(sum)) o.value = acc;
  }
  for (Instr& in : e.code) {
    for (int& a : in.args) {
      if (a == static_cast<int>(sum)) a = acc;
    }
  }
  std::vector<int> same(e.code.size());
  std::iota(same.begin(), same.end(), 0);
  same[sum] = acc;
  const std::vector<program::Span> spans = std::exchange(e.spans, {});
  move_spans(spans, same, e.spans);
  remove_dead(e);
  return operand;
}

void fold_zero_points(LoweredEpilogue& e) {
  Rewritten out(e);
  for (std::size_t i = 0; i < e.code.size(); ++i) {
    Instr in = out.follow(e.code[i]);
    const auto* t = span_to<program::DequantizeSpan>(e, static_cast<int>(i));
    if (t != nullptr && t->zero != 0 && codes_of(e, t->code) && std::isfinite(t->scale)) {
      const double shift = -static_cast<double>(t->zero) * static_cast<double>(t->scale);
      if (static_cast<double>(static_cast<float>(shift)) == shift && std::fabs(shift) > 1e-30) {
        const int x = out.push({Op::i2f, {out.of(t->code), -1, -1, -1}});
        in = {Op::fma, {x, out.push(imm_f(t->scale)), out.push(imm_f(static_cast<float>(shift))), -1}};
      }
    }
    out.put(i, out.push(in));
  }
  std::move(out).finish(e);
  remove_dead(e);
}

bool add_by_fmas(LoweredEpilogue& e, int c1, std::int32_t first, std::int32_t last) {
  const auto add = find_addition(e, c1);
  if (!add) return false;
  const auto f = find_fmas(*add, first, last);
  if (!f) return false;
  const auto push = [&](const Instr& in) {
    e.code.push_back(in);
    return static_cast<int>(e.code.size()) - 1;
  };
  const int x1 = push({Op::i2f, {c1, -1, -1, -1}}), x2 = push({Op::i2f, {add->other.code, -1, -1, -1}});
  const int inner = push({Op::fma, {x2, push(imm_f(f->b)), push(imm_f(f->c)), -1}});
  const int t = push({Op::fma, {x1, push(imm_f(f->a)), inner, -1}});
  e.pack.value = push({Op::f2i, {t, -1, -1, -1}});
  e.pack.lo = add->requant.first, e.pack.hi = add->requant.last;
  remove_dead(e);
  return true;
}

}  // namespace octavo::cpu::jit
