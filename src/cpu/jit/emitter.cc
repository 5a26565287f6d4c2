// Register allocation and the walk over the program. Values live in registers; constants and 32-bit operands are used as memory
// operands; when registers run out, the value with the farthest next use goes to the stack.
#include "cpu/jit/emitter.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>

namespace octavo::cpu::jit {
namespace {

using program::Op;

bool is_imm(Op op) {
  return op == Op::imm_i || op == Op::imm_f;
}
bool is_load(Op op) {
  return op == Op::load_i || op == Op::load_f;
}

}  // namespace

Emitter::Emitter(Code& code, ConstantPool& pool, const LoweredEpilogue& epilogue, bool vbmi)
    : c_(code), pool_(pool), e_(epilogue), vbmi_(vbmi) {
  uses_.resize(e_.code.size());
  for (std::size_t i = 0; i < e_.code.size(); ++i) {
    for (int a : e_.code[i].args) {
      if (a >= 0) uses_[static_cast<std::size_t>(a)].push_back(static_cast<int>(i));
    }
  }
  const int end = static_cast<int>(e_.code.size());
  for (std::size_t j = 0; j < e_.outputs.size(); ++j) {
    const int v = e_.pack.packs(j) ? e_.pack.value : e_.outputs[j].value;
    uses_[static_cast<std::size_t>(v)].push_back(end);
  }
}

int Emitter::use_from(int value, int first) const {
  for (int u : uses_[static_cast<std::size_t>(value)]) {
    if (u >= first) return u;
  }
  return -1;
}

bool Emitter::dies(int value) const {
  return next_use(value) < 0;
}

int Emitter::take(int value) {
  if (free_.empty()) {
    int victim = -1, far = -1;
    for (int r = 0; r < e_.registers(); ++r) {
      const auto k = static_cast<std::size_t>(r);
      if (owner_[k] < 0 || pinned_[k]) continue;
      const int lane = lane_of_[k];
      const Place& pl = places_[static_cast<std::size_t>(lane)][static_cast<std::size_t>(owner_[k])];
      const int next = use_from(owner_[k], lane > lane_ ? now_ : now_ + 1);  // later lanes have yet to do this instruction
      int distance = std::max(0, next) * 2 + (pl.home != Home::none ? 1 : 0);
      if (pl.hoisted) distance = 0;  // the last choice: giving up a hoisted constant costs every later pixel a load
      if (distance > far) far = distance, victim = r;
    }
    if (victim < 0) throw std::logic_error("no register left for the epilogue");
    const int v = owner_[static_cast<std::size_t>(victim)], lane = lane_of_[static_cast<std::size_t>(victim)];
    Place& pl = places_[static_cast<std::size_t>(lane)][static_cast<std::size_t>(v)];
    if (pl.hoisted) {
      drop_hoisted(v);
    } else {
      if (pl.home == Home::none) {
        c_.vmovups(c_.ptr[c_.rsp + slot(lane, v)], reg(victim));
        pl.home = Home::stack;
      }
      pl.reg = -1;
    }
    owner_[static_cast<std::size_t>(victim)] = -1;
    free_.push_back(victim);
  }
  const int r = free_.back();
  free_.pop_back();
  owner_[static_cast<std::size_t>(r)] = value;
  lane_of_[static_cast<std::size_t>(r)] = lane_;
  pinned_[static_cast<std::size_t>(r)] = true;
  if (value >= 0) place(value).reg = r;
  return r;
}

/// The value is where it came from again, for all lanes. Its register is the caller's.
void Emitter::drop_hoisted(int value) {
  hoisted_.erase(value);
  for (auto& places : places_) {
    if (places.empty()) continue;
    places[static_cast<std::size_t>(value)].reg = -1;
    places[static_cast<std::size_t>(value)].hoisted = false;
  }
}

void Emitter::release(int reg) {
  owner_[static_cast<std::size_t>(reg)] = -1;
  pinned_[static_cast<std::size_t>(reg)] = false;
  free_.push_back(reg);
}

int Emitter::in_register(int value) {
  Place& pl = place(value);
  if (pl.reg >= 0) {
    pinned_[static_cast<std::size_t>(pl.reg)] = true;
    return pl.reg;
  }
  const int r = take(value);
  if (pl.home == Home::constant) {
    const auto bits = e_.code[static_cast<std::size_t>(value)].imm;
    if (const int block = e_.code[static_cast<std::size_t>(value)].block; block >= 0) {
      c_.vmovaps(Xbyak::Zmm(r), pool_.block(block_bytes(block)));
    } else if (bits == 0) {
      clear(c_, reg(r));
    } else {
      c_.vpbroadcastd(reg(r), pool_.one(bits));
    }
  } else if (pl.home == Home::memory) {
    load_into(r, value, p_, v_);
  } else if (pl.home == Home::accumulator) {
    c_.vmovups(reg(r), c_.ptr[c_.r15 + tile_.place(p_, v_)]);
  } else {
    c_.vmovups(reg(r), c_.ptr[c_.rsp + slot(lane_, value)]);
  }
  return r;
}

template <class F>
void Emitter::with_source(int value, F f) {
  Place& pl = place(value);
  if (pl.reg >= 0) {
    pinned_[static_cast<std::size_t>(pl.reg)] = true;
    f(reg(pl.reg));
    return;
  }
  if (const int block = e_.code[static_cast<std::size_t>(value)].block; block >= 0) return f(pool_.block(block_bytes(block)));
  if (pl.home == Home::constant) return f(pool_.each_lane(e_.code[static_cast<std::size_t>(value)].imm));
  if (pl.home == Home::stack) return f(c_.ptr[c_.rsp + slot(lane_, value)]);
  if (pl.home == Home::accumulator) return f(c_.ptr[c_.r15 + tile_.place(p_, v_)]);
  const Stream& s = operand_of(value);
  const bool four_bytes = s.dtype == ir::DType::f32 || s.dtype == ir::DType::s32;
  const bool vector = s.access == OperandAccess::channel || s.access == OperandAccess::full;
  if (four_bytes && !(vector && masked(v_) && !padded(value))) {
    const auto where = element(e_.code[static_cast<std::size_t>(value)].imm, p_, v_);
    if (vector) return f(where);
    if (wide()) return f(c_.ptr_b[where.getRegExp()]);
  }
  f(reg(in_register(value)));
}

/// The register for the result of instruction i: that of an argument which ends here, or a fresh one.
int Emitter::destination(int i, std::initializer_list<int> args) {
  int reg = -1;
  for (int a : args) {
    Place& pl = place(a);
    if (pl.reg < 0 || pl.hoisted || !dies(a)) continue;
    if (reg < 0) {
      reg = pl.reg;
      owner_[static_cast<std::size_t>(reg)] = i;
      place(i).reg = reg;
    } else if (pl.reg != reg) {
      release(pl.reg);
    }
    pl.reg = -1;
  }
  return reg >= 0 ? reg : take(i);
}

void Emitter::place_sources(int lanes) {
  owner_.fill(-1);
  pinned_.fill(false);
  for (int lane = 0; lane < lanes; ++lane) {
    lane_ = lane;
    places_[static_cast<std::size_t>(lane)].assign(e_.code.size(), Place{});
    for (std::size_t i = 0; i < e_.code.size(); ++i) {
      const Op op = e_.code[i].op;
      if (!is_imm(op) && !is_load(op)) continue;
      const int value = static_cast<int>(i);
      place(value).home = is_imm(op) ? Home::constant : Home::memory;
      const auto it = hoisted_.find(value);
      if (it == hoisted_.end()) continue;
      place(value).reg = it->second;
      place(value).hoisted = true;
      owner_[static_cast<std::size_t>(it->second)] = value;
      lane_of_[static_cast<std::size_t>(it->second)] = lane;
    }
  }
  for (auto lane = static_cast<std::size_t>(lanes); lane < places_.size(); ++lane) places_[lane].clear();
}

void Emitter::compute(int i) {
  const Instr& in = e_.code[static_cast<std::size_t>(i)];
  const int a = in.args[0], b = in.args[1], c = in.args[2], d = in.args[3];
  const auto Z = [this](int r) { return reg(r); };
  const auto has_reg = [this](int v) { return place(v).reg >= 0; };
  const auto one = [&](auto f) { with_source(a, [&](const auto& src) { f(destination(i, {a}), src); }); };
  const auto two = [&](auto f) {
    int x = a, y = b;
    if (in.reversed || (commutes(in.op) && !has_reg(x) && has_reg(y))) std::swap(x, y);
    const int rx = in_register(x);
    with_source(y, [&](const auto& src) { f(Z(destination(i, {x, y})), Z(rx), src); });
  };
  switch (in.special) {
    case Special::within: two([&](auto r, auto x, const auto& s) { c_.vrangeps(r, x, s, 2); }); return;
    case Special::add_down: {
      const int rx = in_register(a), rb = in_register(b);
      c_.vaddps(Xbyak::Zmm(destination(i, {a})), Xbyak::Zmm(rx), Xbyak::Zmm(rb) | Xbyak::util::T_rd_sae);
      return;
    }
    case Special::pick: {
      const int rx = in_register(a);
      with_source(b, [&](const auto& src) { c_.vpermps(Xbyak::Zmm(destination(i, {a})), Xbyak::Zmm(rx), src); });
      return;
    }
    case Special::approximate_inverse: one([&](int r, const auto& s) { c_.vrcp14ps(Xbyak::Zmm(r), s); }); return;
    case Special::minus_product:  // an fma
    case Special::none: break;
  }
  switch (in.op) {
    case Op::i2f: one([&](int r, const auto& s) { c_.vcvtdq2ps(Z(r), s); }); break;
    case Op::f2i: one([&](int r, const auto& s) { c_.vcvtps2dq(Z(r), s); }); break;
    case Op::sqrt: one([&](int r, const auto& s) { c_.vsqrtps(Z(r), s); }); break;
    case Op::round:
    case Op::floor:
    case Op::ceil: {
      const std::uint8_t way = in.op == Op::round ? 8 : in.op == Op::floor ? 9 : 10;
      one([&](int r, const auto& s) { wide() ? c_.vrndscaleps(Z(r), s, way) : c_.vroundps(Z(r), s, way); });
      break;
    }
    case Op::add: two([&](auto r, auto x, const auto& s) { c_.vaddps(r, x, s); }); break;
    case Op::sub: two([&](auto r, auto x, const auto& s) { c_.vsubps(r, x, s); }); break;
    case Op::mul: two([&](auto r, auto x, const auto& s) { c_.vmulps(r, x, s); }); break;
    case Op::div: two([&](auto r, auto x, const auto& s) { c_.vdivps(r, x, s); }); break;
    case Op::max: two([&](auto r, auto x, const auto& s) { c_.vmaxps(r, x, s); }); break;
    case Op::min: two([&](auto r, auto x, const auto& s) { c_.vminps(r, x, s); }); break;
    case Op::add_i: two([&](auto r, auto x, const auto& s) { c_.vpaddd(r, x, s); }); break;
    case Op::sub_i: two([&](auto r, auto x, const auto& s) { c_.vpsubd(r, x, s); }); break;
    case Op::mul_i: two([&](auto r, auto x, const auto& s) { c_.vpmulld(r, x, s); }); break;
    case Op::max_i: two([&](auto r, auto x, const auto& s) { c_.vpmaxsd(r, x, s); }); break;
    case Op::min_i: two([&](auto r, auto x, const auto& s) { c_.vpminsd(r, x, s); }); break;
    case Op::and_i: two([&](auto r, auto x, const auto& s) { wide() ? c_.vpandd(r, x, s) : c_.vandps(r, x, s); }); break;
    case Op::or_i: two([&](auto r, auto x, const auto& s) { wide() ? c_.vpord(r, x, s) : c_.vorps(r, x, s); }); break;
    case Op::shl_i: {
      const int x = in_register(a);
      c_.vpslld(Z(destination(i, {a})), Z(x), static_cast<std::uint8_t>(in.imm));
      break;
    }
    case Op::sra_i: {
      const int x = in_register(a);
      c_.vpsrad(Z(destination(i, {a})), Z(x), static_cast<std::uint8_t>(in.imm));
      break;
    }
    case Op::nan0: {
      const int x = in_register(a);
      if (!wide()) {
        const int ordered = take(-1);
        c_.vcmpps(reg(ordered), reg(x), reg(x), 7);
        c_.vandps(reg(destination(i, {a})), reg(x), reg(ordered));
        release(ordered);
        break;
      }
      c_.vcmpps(c_.k2, Xbyak::Zmm(x), Xbyak::Zmm(x), 7);  // ordered
      c_.vmovaps(Xbyak::Zmm(destination(i, {a})) | c_.k2 | Xbyak::util::T_z, Xbyak::Zmm(x));
      break;
    }
    case Op::to_f16: {
      const int x = in_register(a);
      const int r = take(i);
      canonical_nan(r, x);
      const Xbyak::Xmm half = wide() ? Xbyak::Xmm(Xbyak::Operand::YMM, r) : Xbyak::Xmm(r);
      c_.vcvtps2ph(half, Z(r), 0);
      c_.vcvtph2ps(Z(r), half);
      break;
    }
    case Op::to_bf16: {
      const int x = in_register(a);
      round_bf16(take(i), x);
      break;
    }
    case Op::sel_lt:
    case Op::sel_eq: {
      const int x = in_register(a);
      const std::uint8_t way = in.op == Op::sel_lt ? 0x11 : 0x00;
      if (!wide()) {
        const int chosen = take(-1);
        with_source(b, [&](const auto& src) { c_.vcmpps(reg(chosen), reg(x), src, way); });
        const int other = in_register(d);
        with_source(c, [&](const auto& src) { c_.vblendvps(reg(destination(i, {c, d, a, b})), reg(other), src, reg(chosen)); });
        release(chosen);
        break;
      }
      with_source(b, [&](const auto& src) { c_.vcmpps(c_.k2, Z(x), src, way); });
      const Xbyak::Zmm other(in_register(d));
      with_source(c, [&](const auto& src) { c_.vblendmps(Xbyak::Zmm(destination(i, {c, d, a, b})) | c_.k2, other, src); });
      break;
    }
    case Op::fma: {
      const bool minus = in.special == Special::minus_product;
      int x = a, y = b;  // x stays in a register or becomes the result, y may come from memory
      if (!has_reg(x) && has_reg(y)) std::swap(x, y);
      const auto ends = [&](int v) { return has_reg(v) && dies(v) && !place(v).hoisted; };
      if (!ends(x) && ends(y)) std::swap(x, y);
      const int rx = in_register(x);
      if (!ends(x) && ends(c) && c != x && c != y) {  // result in c's register
        const int rc = in_register(c);
        with_source(y, [&](const auto& src) { minus ? c_.vfnmadd231ps(Z(rc), Z(rx), src) : c_.vfmadd231ps(Z(rc), Z(rx), src); });
        destination(i, {c, x, y});
        break;
      }
      if (ends(x) && x != y && x != c) {  // result in x's register
        if (has_reg(y) || place(c).reg < 0) {
          const int ry = in_register(y);
          with_source(c, [&](const auto& src) { minus ? c_.vfnmadd213ps(Z(rx), Z(ry), src) : c_.vfmadd213ps(Z(rx), Z(ry), src); });
        } else {
          const int rc = in_register(c);
          with_source(y, [&](const auto& src) { minus ? c_.vfnmadd132ps(Z(rx), Z(rc), src) : c_.vfmadd132ps(Z(rx), Z(rc), src); });
        }
        destination(i, {x, y, c});
        break;
      }
      const int ry = in_register(y), r = take(i);
      c_.vmovaps(Z(r), Z(rx));
      with_source(c, [&](const auto& src) { minus ? c_.vfnmadd213ps(Z(r), Z(ry), src) : c_.vfmadd213ps(Z(r), Z(ry), src); });
      break;
    }
    case Op::table: {
      const int x = in_register(a);
      table(take(i), x, in.imm);
      break;
    }
    default: throw std::logic_error("operation without an emitter");
  }
}

void Emitter::set_lane(int lane) {
  lane_ = lane;
  p_ = at_[static_cast<std::size_t>(lane)].first;
  v_ = at_[static_cast<std::size_t>(lane)].second;
}

/// Stores what is not packed. The register of the packed value, now the caller's; -1 without one.
int Emitter::finish_lane() {
  for (std::size_t j = 0; j < e_.outputs.size(); ++j) {
    if (e_.pack.packs(j)) continue;
    store(static_cast<int>(j), in_register(e_.outputs[j].value));
    pinned_.fill(false);
  }
  int result = -1;
  if (!e_.pack.sinks.empty()) {
    const int value = e_.pack.value;
    result = in_register(value);
    Place& pl = place(value);
    if (pl.hoisted) {
      const int copy = take(-1);
      c_.vmovdqa32(Xbyak::Zmm(copy), Xbyak::Zmm(result));
      result = copy;
    } else {
      owner_[static_cast<std::size_t>(result)] = -1;
      pl.reg = -1;
    }
    pinned_.fill(false);
  }
  for (auto& pl : places_[static_cast<std::size_t>(lane_)]) {
    if (pl.reg < 0 || pl.hoisted) continue;
    release(pl.reg);
    pl.reg = -1;
  }
  return result;
}

}  // namespace octavo::cpu::jit
