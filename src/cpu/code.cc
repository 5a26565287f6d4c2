#include "cpu/code.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "region/refusal.h"

#if defined(__x86_64__)
#include "cpu/jit/division.h"
#endif

namespace octavo::cpu {
namespace {

using program::Instr;
using program::Op;
using program::Program;

// A step over values (instruction indices), before slots are given.
struct Draft {
  Step step;
  std::vector<int> args;  // values, in the order a, b, c, d
  int value = -1;         // defined
};

// The division of a quantize step becomes a product and an fma where all codes are proven to stay the same.
void multiply_where_exact(Step& s) {
#if defined(__x86_64__)
  constexpr float kMostCodes = 2048;
  if (!(s.f1 >= -kMostCodes && s.f2 <= kMostCodes)) return;
  if (!jit::same_codes(s.f0, static_cast<std::int32_t>(std::floor(s.f1)), static_cast<std::int32_t>(std::ceil(s.f2)))) return;
  const auto r = jit::Reciprocal::of(s.f0);
  s.f0 = r.high;
  s.f3 = r.low;
#else
  (void)s;
#endif
}

class Compiler {
 public:
  Compiler(const Program& p, bool multiply) : p_(p), multiply_(multiply), uses_(p.code.size(), 0), alias_(p.code.size()) {
    for (std::size_t i = 0; i < p.code.size(); ++i) alias_[i] = static_cast<int>(i);
    for (const Instr& t : p.code) {
      for (const int a : t.args) {
        if (a >= 0) ++uses_[static_cast<std::size_t>(a)];
      }
    }
    for (const auto& out : p.outputs) ++uses_[static_cast<std::size_t>(out.value)];
  }

  std::vector<Draft> draft(const std::vector<Elem>& loads) {
    absorbed_.assign(p_.code.size(), 0);
    std::vector<Draft> out(p_.code.size());
    // Backwards: a fused step swallows the producers that nothing else reads.
    for (int i = static_cast<int>(p_.code.size()) - 1; i >= 0; --i) {
      if (absorbed_[static_cast<std::size_t>(i)] != 0) continue;
      out[static_cast<std::size_t>(i)] = one(i, loads);
    }
    std::vector<Draft> kept;
    for (Draft& d : out) {
      if (d.value >= 0 && uses_[static_cast<std::size_t>(d.value)] > 0) kept.push_back(std::move(d));
    }
    return kept;
  }
  [[nodiscard]] int resolve(int value) const { return alias_[static_cast<std::size_t>(value)]; }

 private:
  [[nodiscard]] const Instr& at(int value) const { return p_.code[static_cast<std::size_t>(value)]; }
  [[nodiscard]] bool only_use(int value) const { return uses_[static_cast<std::size_t>(value)] == 1; }
  [[nodiscard]] bool imm_f(int value, float& out) const {
    if (value < 0 || at(value).op != Op::imm_f) return false;
    out = std::bit_cast<float>(at(value).imm);
    return true;
  }

  Draft one(int i, const std::vector<Elem>& loads) {
    const Instr& t = at(i);
    Draft d;
    d.value = i;
    if (match_quantize(i, d) || match_scale_bias(i, d)) return d;
    d.step.op = static_cast<BlockOp>(t.op);
    d.step.imm = t.imm;
    if (t.op == Op::load_i || t.op == Op::load_f) d.step.elem = loads[static_cast<std::size_t>(t.imm)];
    if (t.op == Op::bits_f || t.op == Op::bits_i) {  // the same bits: share the slot
      alias_[static_cast<std::size_t>(i)] = t.args[0];
    }
    for (const int a : t.args) {
      if (a >= 0) d.args.push_back(a);
    }
    return d;
  }

  // [add_i](f2i(min(max([nan0](x / s), lo), hi)), zp) with immediates
  bool match_quantize(int i, Draft& d) {
    int v = i;
    std::vector<int> inner;
    Step s;
    s.op = BlockOp::quantize;
    if (at(v).op == Op::add_i) {
      const int zero = at(v).args[1];
      if (at(zero).op != Op::imm_i) return false;
      s.imm = at(zero).imm;
      v = at(v).args[0];
      inner.push_back(v);
    }
    if (at(v).op != Op::f2i) return false;
    v = at(v).args[0];
    inner.push_back(v);
    if (at(v).op != Op::min || !imm_f(at(v).args[1], s.f2)) return false;
    v = at(v).args[0];
    inner.push_back(v);
    if (at(v).op != Op::max || !imm_f(at(v).args[1], s.f1)) return false;
    v = at(v).args[0];
    inner.push_back(v);
    if (at(v).op == Op::nan0) {
      s.d = 1;
      v = at(v).args[0];
      inner.push_back(v);
    }
    if (at(v).op != Op::div || !imm_f(at(v).args[1], s.f0)) return false;
    if (!std::all_of(inner.begin(), inner.end(), [&](int x) { return only_use(x); })) return false;
    const int divided = at(v).args[0];
    d.step = s;
    set_args(i, d, {divided});
    for (const int x : inner) absorb(x);
    if (multiply_) multiply_where_exact(d.step);
    return true;
  }

  bool match_scale_bias(int i, Draft& d) {
    const Instr& t = at(i);
    if (t.op != Op::fma || at(t.args[0]).op != Op::i2f || !only_use(t.args[0])) return false;
    d.step.op = BlockOp::scale_bias;
    const int converted = t.args[0];
    set_args(i, d, {at(converted).args[0], t.args[1], t.args[2]});
    absorb(converted);
    return true;
  }

  // `value` becomes part of another step: what it read, it reads no longer by itself.
  void absorb(int value) {
    absorbed_[static_cast<std::size_t>(value)] = 1;
    drop_reads(value);
  }
  void drop_reads(int value) {
    for (const int a : at(value).args) {
      if (a >= 0) --uses_[static_cast<std::size_t>(a)];
    }
  }
  void set_args(int value, Draft& d, std::vector<int> args) {
    drop_reads(value);
    for (const int a : args) ++uses_[static_cast<std::size_t>(a)];
    d.args = std::move(args);
  }

  const Program& p_;
  bool multiply_;
  std::vector<int> uses_;
  std::vector<int> alias_;
  std::vector<char> absorbed_;
};

}  // namespace

const KernelTable* kernel_table(Isa isa) {
  switch (isa) {
    case Isa::portable: return &portable_table();
#if defined(__x86_64__)
    case Isa::avx2: return &avx2_table();
    case Isa::avx512:
    case Isa::avx512vnni:
    case Isa::amx: return &avx512_table();
#endif
    default: return nullptr;
  }
}

Result<Elem> elem_of(ir::DType type) {
  switch (type) {
    case ir::DType::u8:
    case ir::DType::boolean: return Elem::u8;
    case ir::DType::s8: return Elem::s8;
    case ir::DType::s32: return Elem::s32;
    case ir::DType::f32: return Elem::f32;
    case ir::DType::f16: return Elem::f16;
    case ir::DType::bf16: return Elem::bf16;
    default: return region::refuse("type of an operand or store", ir::name_of(type), "u8, s8, s32, bool, f32, f16 or bf16");
  }
}

std::int64_t bytes_of(Elem elem) {
  switch (elem) {
    case Elem::u8:
    case Elem::s8: return 1;
    case Elem::f16:
    case Elem::bf16: return 2;
    default: return 4;
  }
}

Result<Code> Code::compile(const Program& p, const std::vector<Elem>& loads, bool multiply) {
  OCTAVO_CHECK(program::verify(p));
  Code code;
  Compiler compiler(p, multiply);
  std::vector<Draft> drafts = compiler.draft(loads);
  std::vector<int> slot_of(p.code.size(), -1), last_use(p.code.size(), -1);
  const int end = static_cast<int>(drafts.size());
  const auto root = [&](int value) {
    while (compiler.resolve(value) != value) value = compiler.resolve(value);
    return static_cast<std::size_t>(value);
  };
  for (int k = 0; k < end; ++k) {
    for (const int a : drafts[static_cast<std::size_t>(k)].args) last_use[root(a)] = k;
  }
  for (const auto& out : p.outputs) last_use[root(out.value)] = end;
  std::vector<int> free_slots;
  const auto new_slot = [&] {
    if (free_slots.empty()) return code.slots_++;
    const int slot = free_slots.back();
    free_slots.pop_back();
    return slot;
  };
  // Immediates keep their slots for the whole run, so they are given first and never shared.
  for (const Draft& d : drafts) {
    const Instr& t = p.code[static_cast<std::size_t>(d.value)];
    if (d.step.op != BlockOp::imm_i && d.step.op != BlockOp::imm_f) continue;
    slot_of[static_cast<std::size_t>(d.value)] = code.slots_;
    code.constants_.push_back({code.slots_++, t.imm});
  }
  bool arithmetic = false;
  for (int k = 0; k < end; ++k) {
    Draft& d = drafts[static_cast<std::size_t>(k)];
    const auto value = static_cast<std::size_t>(d.value);
    const BlockOp op = d.step.op;
    if (op == BlockOp::imm_i || op == BlockOp::imm_f || op == BlockOp::bits_f || op == BlockOp::bits_i) {
      arithmetic = true;
      continue;
    }
    if (op == BlockOp::acc_i || op == BlockOp::acc_f) {
      slot_of[value] = 0;
      continue;
    }
    std::int32_t* const fields[] = {&d.step.a, &d.step.b, &d.step.c, &d.step.d};
    for (std::size_t a = 0; a < d.args.size(); ++a) *fields[a] = slot_of[root(d.args[a])];
    d.step.dst = slot_of[value] = new_slot();
    for (const int a : d.args) {  // after the new slot: a step never writes where it reads
      const std::size_t r = root(a);
      const auto is_constant = [&](const Constant& c) { return c.slot == slot_of[r]; };
      if (last_use[r] != k || slot_of[r] == 0) continue;
      if (std::any_of(code.constants_.begin(), code.constants_.end(), is_constant)) continue;
      free_slots.push_back(slot_of[r]);
      last_use[r] = end + 1;  // an operand read twice by one step is freed once
    }
    if (last_use[value] < 0) free_slots.push_back(d.step.dst);
    arithmetic = arithmetic || (op != BlockOp::load_i && op != BlockOp::load_f);
    code.steps_.push_back(d.step);
  }
  for (const auto& out : p.outputs) {
    OCTAVO_TRY(const Elem elem, elem_of(out.type));
    code.stores_.push_back({slot_of[root(out.value)], elem});
  }
  for (const program::Table& table : p.tables) {
    const std::size_t at = code.tables_.size();
    code.tables_.resize(at + kTableBytes);
    std::copy(table.begin(), table.end(), code.tables_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  code.identity_ = !arithmetic && code.stores_.size() == 1 && code.steps_.size() <= 1;
  return code;
}

BlockCode Code::view() const {
  return {steps_.data(), static_cast<int>(steps_.size()), stores_.data(), static_cast<int>(stores_.size()), tables_.data(),
          stride()};
}

void Code::prepare(std::int32_t* slots) const {
  for (const Constant& c : constants_) std::fill_n(slots + static_cast<std::ptrdiff_t>(c.slot) * stride(), block(), c.bits);
}

}  // namespace octavo::cpu
