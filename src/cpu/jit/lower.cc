#include "cpu/jit/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>

#include "cpu/jit/rewritten.h"
#include "region/tensor_ref.h"

namespace octavo::cpu::jit {
namespace {

using program::Op;

bool storable(ir::DType t) {
  return t == ir::DType::u8 || t == ir::DType::s8 || t == ir::DType::s32 || t == ir::DType::f32 || t == ir::DType::f16 ||
         t == ir::DType::bf16 || t == ir::DType::boolean;
}

bool loadable(Op op, ir::DType t) {
  if (op == Op::load_i) return t == ir::DType::u8 || t == ir::DType::s8 || t == ir::DType::s32 || t == ir::DType::boolean;
  return t == ir::DType::f32 || t == ir::DType::f16 || t == ir::DType::bf16;
}

/// Strides with those of extent 1 set to 0 (they never matter).
std::array<std::int64_t, 4> effective(const region::TensorRef& ref, const ir::Shape& space) {
  std::array<std::int64_t, 4> s{};
  for (std::size_t k = 0; k < 4; ++k) s[k] = broadcast_stride(ref, space, k);
  return s;
}

Reasons address(const region::TensorRef& ref, const std::vector<std::int64_t>& div, const ir::Shape& space, bool batch_is_pixels,
                bool is_store, std::string_view what, Stream& out, int& columns) {
  if (ref.strides.size() != 4) return unmet(fmt::format("rank of {}", what), ref.strides.size(), "4");
  const auto s = effective(ref, space);
  out.dtype = ref.dtype;
  for (std::size_t k : {0, 1}) {
    if (div.size() == 4 && div[k] != 1 && s[k] != 0)
      return unmet(fmt::format("repetition of {} along dimension {}", what, k), div[k], "1");
  }
  const bool by_pixel = s[2] != 0 || s[3] != 0 || (batch_is_pixels && s[0] != 0);
  const bool one_channel = space[1] == 1;
  if (s[1] != 1 && s[1] != 0) return unmet(fmt::format("channel stride of {}", what), s[1], "1");
  if (is_store && s[1] == 0 && !one_channel) return unmet(fmt::format("channel stride of {}", what), 0, "1");
  const bool wide = s[1] == 1 || is_store;
  if (is_store || by_pixel) {
    out.access = wide ? OperandAccess::full : OperandAccess::pixel;
    out.column = columns++;
  } else {
    out.access = wide ? OperandAccess::channel : OperandAccess::uniform;
  }
  return {};
}

class Lowering {
 public:
  Lowering(LoweredEpilogue& e, bool vbmi) : e_(e), vbmi_(vbmi) {}

  void run(const program::Program& p) {
    std::vector<int> same(p.code.size());  // bit casts are the same register
    int acc = -1;
    for (std::size_t i = 0; i < p.code.size(); ++i) {
      const auto& in = p.code[i];
      if (in.op == Op::bits_f || in.op == Op::bits_i) {
        same[i] = same[static_cast<std::size_t>(in.args[0])];
        continue;
      }
      const bool is_acc = in.op == Op::acc_i || in.op == Op::acc_f;
      if (is_acc && acc >= 0) {
        same[i] = acc;
        continue;
      }
      Instr out{in.op, in.args, in.imm, false};
      for (int& a : out.args) {
        if (a >= 0) a = same[static_cast<std::size_t>(a)];
      }
      same[i] = push(out);
      if (is_acc) acc = same[i];
    }
    e_.outputs = p.outputs;
    for (auto& o : e_.outputs) o.value = same[static_cast<std::size_t>(o.value)];
    e_.tables = p.tables;
    take_spans(p, same);
    const auto computed = e_.outputs;
    if (vbmi_) {
      for (auto& o : e_.outputs) tabulate(o);
    }
    if (e_.lanes == 16) choose_pack();
    for (std::size_t j = 0; j < computed.size(); ++j) {  // lanes of 32 bits look nothing up
      if (!e_.pack.packs(j)) e_.outputs[j] = computed[j];
    }
    for (std::size_t j = 0; j < e_.outputs.size(); ++j) {  // a store rounds as well
      if (e_.stores[j].dtype == ir::DType::bf16 && at(e_.outputs[j].value).op == Op::to_bf16)
        e_.outputs[j].value = at(e_.outputs[j].value).args[0];
    }
    remove_dead(e_);
  }

 private:
  void take_spans(const program::Program& p, const std::vector<int>& same) {
    move_spans(p.spans, same, e_.spans);
    for (program::Span& s : e_.spans) {
      if (auto* r = std::get_if<program::RequantizeSpan>(&s)) r->result = r->rounded, r->zero = 0;
      if (auto* d = std::get_if<program::DequantizeSpan>(&s); d != nullptr && at(d->shifted).op != Op::sub_i)
        d->code = d->shifted, d->zero = 0;
    }
  }
  int push(const Instr& i) {
    if (i.op == Op::sub_i && at(i.args[0]).op == Op::add_i) {  // (x + c) - c: a code that goes back to float
      const Instr& sum = at(i.args[0]);
      if (const auto c = imm_i(i.args[1])) {
        if (imm_i(sum.args[1]) == c) return sum.args[0];
        if (imm_i(sum.args[0]) == c) return sum.args[1];
      }
    }
    e_.code.push_back(i);
    return static_cast<int>(e_.code.size()) - 1;
  }
  const Instr& at(int v) const { return e_.code[static_cast<std::size_t>(v)]; }
  std::optional<float> imm_f(int v) const {
    if (at(v).op != Op::imm_f) return std::nullopt;
    return std::bit_cast<float>(at(v).imm);
  }
  std::optional<std::int32_t> imm_i(int v) const {
    if (at(v).op != Op::imm_i) return std::nullopt;
    return at(v).imm;
  }

  /// Whatever becomes of a code is a table of it: an 8-bit output behind a second rounding (a pair, a clip or an activation,
  /// another pair) is looked up in packed bytes instead of computed in floats, and what is left is requantization (requant.h).
  void tabulate(program::Output& o) {
    if (o.type != ir::DType::u8 && o.type != ir::DType::s8) return;
    for (std::size_t i = 0; i < e_.code.size(); ++i) {
      const int cut = static_cast<int>(i);
      if (at(cut).op != Op::f2i || is_code_of(o.value, cut)) continue;
      const auto clamp = float_clamp(at(cut).args[0]);
      if (!clamp || !clamp->has_lo || clamp->nan_passes || !(clamp->hi - clamp->lo <= 255) || std::fabs(clamp->lo) > 1024) continue;
      std::vector<char> cone(e_.code.size(), 0);
      if (!function_of(o.value, cut, cone)) continue;
      const auto first = static_cast<std::int32_t>(std::ceil(clamp->lo));
      program::Table table{};
      for (std::int32_t byte = 0; byte < 256; ++byte)
        table[static_cast<std::size_t>(byte)] = value_at(o.value, cut, first + byte, cone);
      const auto found = std::find(e_.tables.begin(), e_.tables.end(), table);
      const auto which = static_cast<std::int32_t>(found - e_.tables.begin());
      if (found == e_.tables.end()) e_.tables.push_back(table);
      const int index = first == 0 ? cut : plus(cut, -first);
      o.value = push(Instr{Op::table, {index, -1, -1, -1}, which, false});
      return;
    }
  }

  /// cut + c, the node that computes it already if there is one.
  int plus(int cut, std::int32_t c) {
    for (std::size_t i = 0; i < e_.code.size(); ++i) {
      const Instr& in = e_.code[i];
      if (in.op != Op::add_i) continue;
      if ((in.args[0] == cut && imm_i(in.args[1]) == c) || (in.args[1] == cut && imm_i(in.args[0]) == c))
        return static_cast<int>(i);
    }
    const int imm = push(Instr{Op::imm_i, {-1, -1, -1, -1}, c, false});
    return push(Instr{Op::add_i, {cut, imm, -1, -1}, 0, false});
  }

  /// v is the code itself, shifted and clamped: the pack does that. A table already looked up has nothing to gain.
  bool is_code_of(int v, int cut) const {
    while (v != cut) {
      const Instr& in = at(v);
      if (in.op == Op::table) return true;
      if (in.op != Op::add_i && in.op != Op::min_i && in.op != Op::max_i && in.op != Op::sub_i) return false;
      if (imm_i(in.args[1])) {
        v = in.args[0];
      } else if (in.op != Op::sub_i && imm_i(in.args[0])) {
        v = in.args[1];
      } else {
        return false;
      }
    }
    return true;
  }

  /// v depends on nothing but `cut` and constants; `cone` gets the nodes in between.
  bool function_of(int v, int cut, std::vector<char>& cone) const {
    if (v == cut || cone[static_cast<std::size_t>(v)] != 0) return true;
    const Instr& in = at(v);
    if (in.op == Op::acc_i || in.op == Op::acc_f || in.op == Op::load_i || in.op == Op::load_f) return false;
    for (const int a : in.args) {
      if (a >= 0 && !function_of(a, cut, cone)) return false;
    }
    cone[static_cast<std::size_t>(v)] = 1;
    return true;
  }

  /// The low byte of v where `cut` is `code`, by the oracle.
  std::uint8_t value_at(int v, int cut, std::int32_t code, const std::vector<char>& cone) const {
    program::Program p;
    p.tables = e_.tables;
    std::vector<program::Scalar> values(e_.code.size());
    for (std::size_t i = 0; i < e_.code.size(); ++i) {
      const Instr& in = e_.code[i];
      if (static_cast<int>(i) == cut) {
        values[i].i = code;
      } else if (cone[i] != 0 && (in.op == Op::imm_i || in.op == Op::imm_f)) {
        values[i].i = in.imm;
        if (in.op == Op::imm_f) values[i].f = std::bit_cast<float>(in.imm);
      } else if (cone[i] != 0) {
        std::array<program::Scalar, 4> a{};
        for (std::size_t k = 0; k < 4; ++k) {
          if (in.args[k] >= 0) a[k] = values[static_cast<std::size_t>(in.args[k])];
        }
        values[i] = program::evaluate_op(p, program::Instr{in.op, in.args, in.imm}, a[0], a[1], a[2], a[3]);
      }
    }
    return static_cast<std::uint8_t>(values[static_cast<std::size_t>(v)].i & 255);
  }

  /// The first 8-bit output decides what is packed; others that are the same bytes or tables of them join it.
  void choose_pack() {
    Pack& k = e_.pack;
    for (std::size_t j = 0; j < e_.outputs.size(); ++j) {
      const auto type = e_.outputs[j].type;
      if ((type != ir::DType::u8 && type != ir::DType::s8) || e_.stores[j].access != OperandAccess::full) continue;
      Pack::Sink sink{static_cast<int>(j), -1};
      int value = e_.outputs[j].value;
      bool is_signed = type == ir::DType::s8;
      if (vbmi_ && at(value).op == Op::table) {  // the index is unsigned, whatever the entries are
        sink.table = at(value).imm;
        value = at(value).args[0];
        is_signed = false;
      }
      if (k.sinks.empty()) {
        k.value = value;
        k.is_signed = is_signed;
      } else if (k.value != value || k.is_signed != is_signed) {
        continue;
      }
      k.sinks.push_back(sink);
    }
    if (!k.sinks.empty()) simplify_pack();
  }

  // The packs saturate, so clamps to the type's range are free; see tests/cpu/jit_epilogue_test.cc for NaN and infinities.
  void simplify_pack() {
    Pack& k = e_.pack;
    const std::int32_t lo = k.is_signed ? -128 : 0, hi = k.is_signed ? 127 : 255;
    k.lo = lo, k.hi = hi;
    // Integer clamps from the outermost inwards: the bounds met first win. Whole bytes are clamped 64 at a time.
    while (at(k.value).op == Op::min_i || at(k.value).op == Op::max_i) {
      const Instr& v = at(k.value);
      const auto a = imm_i(v.args[0]), b = imm_i(v.args[1]);
      if (!a && !b) break;
      const std::int32_t bound = a ? *a : *b;
      if (v.op == Op::min_i ? bound < k.lo : bound > k.hi) break;  // it would empty the range
      if (v.op == Op::min_i) k.hi = std::min(k.hi, bound);
      if (v.op == Op::max_i) k.lo = std::max(k.lo, bound);
      k.value = v.args[a ? 1 : 0];
    }
    std::int32_t zero = 0;
    int rounded = k.value;
    if (at(k.value).op == Op::add_i) {
      for (std::size_t side = 0; side < 2; ++side) {
        const auto c = imm_i(at(k.value).args[side]);
        if (!c || *c < -1024 || *c > 1024) continue;
        zero = *c;
        rounded = at(k.value).args[1 - side];
        break;
      }
      if (rounded == k.value) return;
    }
    if (at(rounded).op != Op::f2i) return;
    const auto clamp = float_clamp(at(rounded).args[0]);
    if (!clamp || (clamp->nan_passes && zero < 0)) return;
    // The upper bound keeps the conversion in range, so the int32 sum cannot wrap and 16-bit saturating arithmetic is the same.
    if (clamp->hi + static_cast<float>(zero) > 32767.0F) return;
    int value = at(rounded).args[0];
    if (clamp->has_lo) {
      if (clamp->lo < -2147483648.0F || clamp->lo + static_cast<float>(zero) < -32768.0F) return;
      if (clamp->lo + static_cast<float>(zero) <= static_cast<float>(lo)) {
        Instr m{Op::min, {clamp->x, clamp->hi_value, -1, -1}, 0, clamp->nan_is_lo};
        value = push(m);
      }
    } else if (zero < 0) {
      return;  // without a lower clamp INT_MIN + zero would wrap
    }
    k.value = push(Instr{Op::f2i, {value, -1, -1, -1}, 0, false});
    k.zero = zero;
    note_pack(rounded, *clamp, value);
  }

  struct Clamp {
    int x = -1, hi_value = -1;
    float lo = 0, hi = 0;
    bool has_lo = false, nan_is_lo = false;
    bool nan_passes = false;  ///< a NaN becomes INT_MIN, then INT_MIN + zero
  };

  /// The packed value is the requantization that ends with `rounded`, of `value`: with its clamp, or with the upper bound alone.
  void note_pack(int rounded, const Clamp& clamp, int value) {
    const auto* whole = span_to<program::RequantizeSpan>(e_, rounded);
    if (whole == nullptr) return;
    program::RequantizeSpan s = *whole;
    s.rounded = s.result = e_.pack.value;
    if (value != at(rounded).args[0]) {
      while (!s.steps.empty() && s.steps.back().from != clamp.x) s.steps.pop_back();
      if (s.steps.empty()) return;
      s.steps.back() = {Op::min, clamp.hi, clamp.nan_is_lo, clamp.x};
    }
    e_.spans.push_back(std::move(s));
  }

  /// min(max(x, lo), hi) in either nesting and operand order, or min(x, hi) alone. lo <= hi.
  std::optional<Clamp> float_clamp(int v) const {
    Clamp c;
    const auto split = [this](int value, Op op, int& x, int& bound, bool& nan_to_bound) {
      if (at(value).op != op) return false;
      for (std::size_t side = 0; side < 2; ++side) {
        const auto imm = imm_f(at(value).args[side]);
        if (!imm || std::isnan(*imm)) continue;
        x = at(value).args[1 - side];
        bound = at(value).args[side];
        nan_to_bound = side == 1;  // max(NaN, b) = b; max(b, NaN) = NaN
        return true;
      }
      return false;
    };
    int inner = -1, lo_value = -1;
    bool outer_nan = false, inner_nan = false;
    if (split(v, Op::min, inner, c.hi_value, outer_nan)) {
      c.hi = *imm_f(c.hi_value);
      c.x = inner;
      if (split(inner, Op::max, c.x, lo_value, inner_nan)) {
        c.has_lo = true;
        c.lo = *imm_f(lo_value);
        c.nan_is_lo = inner_nan || !outer_nan;  // INT_MIN packs to lo as well
        c.nan_passes = !inner_nan && !outer_nan;
      }
      return c.has_lo && c.lo > c.hi ? std::nullopt : std::optional(c);
    }
    if (split(v, Op::max, inner, lo_value, outer_nan) && split(inner, Op::min, c.x, c.hi_value, inner_nan)) {
      c.has_lo = true;
      c.lo = *imm_f(lo_value);
      c.hi = *imm_f(c.hi_value);
      c.nan_is_lo = !inner_nan;
      c.nan_passes = !inner_nan && !outer_nan;
      return c.lo > c.hi ? std::nullopt : std::optional(c);
    }
    return std::nullopt;
  }

  LoweredEpilogue& e_;
  bool vbmi_;
};

}  // namespace

Reasons lower(const region::Stage& stage, bool batch_is_pixels, bool vbmi, LoweredEpilogue& out, int lanes) {
  const auto& p = stage.program;
  out = LoweredEpilogue{};
  out.lanes = lanes;
  if (stage.space.size() != 4) return unmet("rank of the result", stage.space.size(), "4");
  if (stage.operands.size() + stage.stores.size() > kMaxStreams) {
    return unmet("operands and stores", stage.operands.size() + stage.stores.size(), fmt::format("at most {}", kMaxStreams));
  }
  for (const auto& in : p.code) {
    if (in.op != Op::load_i && in.op != Op::load_f) continue;
    const auto t = stage.operands[static_cast<std::size_t>(in.imm)].ref.dtype;
    if (!loadable(in.op, t))
      return unmet(fmt::format("type of operand {}", in.imm), ir::name_of(t),
                   in.op == Op::load_i ? "u8, s8, s32 or bool" : "f32, f16 or bf16");
  }
  for (std::size_t k = 0; k < stage.operands.size(); ++k) {
    const auto& o = stage.operands[k];
    auto why = address(o.ref, o.div, stage.space, batch_is_pixels, false, fmt::format("operand {}", k), out.operands.emplace_back(),
                       out.columns);
    if (!why.empty()) return why;
  }
  for (std::size_t j = 0; j < stage.stores.size(); ++j) {
    const auto& s = stage.stores[j];
    if (!storable(s.dtype))
      return unmet(fmt::format("type of store {}", j), ir::name_of(s.dtype), "one that vectors are stored as");
    if (s.dtype != p.outputs[j].type) {
      return unmet(fmt::format("type of store {}", j), ir::name_of(s.dtype), ir::name_of(p.outputs[j].type));
    }
    auto why =
        address(s, {}, stage.space, batch_is_pixels, true, fmt::format("store {}", j), out.stores.emplace_back(), out.columns);
    if (!why.empty()) return why;
  }
  Lowering(out, vbmi).run(p);
  return {};
}

}  // namespace octavo::cpu::jit
