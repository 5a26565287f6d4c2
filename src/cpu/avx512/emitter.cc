// Register allocation and the walk over the program. Values live in registers; constants and 32-bit operands are used as memory
// operands; when registers run out, the value with the farthest next use goes to the stack.
#include "cpu/avx512/emitter.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>

namespace octavo::cpu::avx512 {
namespace {

using program::Op;

bool is_source(Op op) {
  return op == Op::acc_i || op == Op::acc_f || op == Op::load_i || op == Op::load_f || op == Op::imm_i || op == Op::imm_f;
}
bool is_imm(Op op) {
  return op == Op::imm_i || op == Op::imm_f;
}
bool is_load(Op op) {
  return op == Op::load_i || op == Op::load_f;
}
bool commutes(Op op) {
  return op == Op::add || op == Op::mul || op == Op::add_i || op == Op::mul_i || op == Op::max_i || op == Op::min_i ||
         op == Op::and_i || op == Op::or_i;
}

}  // namespace

Emitter::Emitter(Code& code, ConstantPool& pool, const Epilogue& epilogue, bool vbmi)
    : c_(code), pool_(pool), e_(epilogue), vbmi_(vbmi) {
  uses_.resize(e_.code.size());
  for (std::size_t i = 0; i < e_.code.size(); ++i) {
    for (int a : e_.code[i].args) {
      if (a >= 0) uses_[static_cast<std::size_t>(a)].push_back(static_cast<int>(i));
    }
  }
  const int end = static_cast<int>(e_.code.size());
  for (std::size_t j = 0; j < e_.outputs.size(); ++j) {
    const int v = static_cast<int>(j) == e_.pack.output ? e_.pack.value : e_.outputs[j].value;
    uses_[static_cast<std::size_t>(v)].push_back(end);
  }
}

int Emitter::next_use(int value) const {
  for (int u : uses_[static_cast<std::size_t>(value)]) {
    if (u > now_) return u;
  }
  return -1;
}

bool Emitter::dies(int value) const {
  return next_use(value) < 0;
}

int Emitter::take(int value) {
  if (free_.empty()) {
    int victim = -1, far = -1;
    for (int r = 0; r < 32; ++r) {
      const auto k = static_cast<std::size_t>(r);
      if (owner_[k] < 0 || pinned_[k]) continue;
      const Place& pl = place_[static_cast<std::size_t>(owner_[k])];
      int distance = std::max(0, next_use(owner_[k])) * 2 + (pl.home != Home::none ? 1 : 0);
      if (pl.hoisted) distance = 0;  // the last choice: giving up a hoisted constant costs every later pixel a load
      if (distance > far) far = distance, victim = r;
    }
    if (victim < 0) throw std::logic_error("no register left for the epilogue");
    const int v = owner_[static_cast<std::size_t>(victim)];
    Place& pl = place_[static_cast<std::size_t>(v)];
    if (pl.hoisted) {
      for (auto it = hoisted_.begin(); it != hoisted_.end();) it = it->second == victim ? hoisted_.erase(it) : std::next(it);
      pl.hoisted = false;
    } else if (pl.home == Home::none) {
      c_.vmovups(c_.ptr[c_.rsp + v * 64], Xbyak::Zmm(victim));
      pl.home = Home::stack;
    }
    pl.reg = -1;
    owner_[static_cast<std::size_t>(victim)] = -1;
    free_.push_back(victim);
  }
  const int r = free_.back();
  free_.pop_back();
  owner_[static_cast<std::size_t>(r)] = value;
  pinned_[static_cast<std::size_t>(r)] = true;
  if (value >= 0) place_[static_cast<std::size_t>(value)].reg = r;
  return r;
}

void Emitter::release(int reg) {
  owner_[static_cast<std::size_t>(reg)] = -1;
  pinned_[static_cast<std::size_t>(reg)] = false;
  free_.push_back(reg);
}

int Emitter::in_register(int value) {
  Place& pl = place_[static_cast<std::size_t>(value)];
  if (pl.reg >= 0) {
    pinned_[static_cast<std::size_t>(pl.reg)] = true;
    return pl.reg;
  }
  const int r = take(value);
  if (pl.home == Home::constant) {
    const auto bits = e_.code[static_cast<std::size_t>(value)].imm;
    if (bits == 0) {
      c_.vpxord(Xbyak::Zmm(r), Xbyak::Zmm(r), Xbyak::Zmm(r));
    } else {
      c_.vpbroadcastd(Xbyak::Zmm(r), pool_.one(bits));
    }
  } else if (pl.home == Home::memory) {
    load_into(r, value, p_, v_);
  } else {
    c_.vmovups(Xbyak::Zmm(r), c_.ptr[c_.rsp + value * 64]);
  }
  return r;
}

template <class F>
void Emitter::with_source(int value, F f) {
  Place& pl = place_[static_cast<std::size_t>(value)];
  if (pl.reg >= 0) {
    pinned_[static_cast<std::size_t>(pl.reg)] = true;
    f(Xbyak::Zmm(pl.reg));
    return;
  }
  if (pl.home == Home::constant) return f(pool_.each_lane(e_.code[static_cast<std::size_t>(value)].imm));
  if (pl.home == Home::stack) return f(c_.ptr[c_.rsp + value * 64]);
  const Stream& s = operand_of(value);
  const bool four_bytes = s.dtype == ir::DType::f32 || s.dtype == ir::DType::s32;
  const bool vector = s.access == Access::channel || s.access == Access::full;
  if (four_bytes && !(vector && masked(v_))) {
    const auto where = element(e_.code[static_cast<std::size_t>(value)].imm, p_, v_);
    if (vector) return f(where);
    return f(c_.ptr_b[where.getRegExp()]);
  }
  f(Xbyak::Zmm(in_register(value)));
}

/// The register for the result of instruction i: that of an argument which ends here, or a fresh one.
int Emitter::destination(int i, std::initializer_list<int> args) {
  int reg = -1;
  for (int a : args) {
    Place& pl = place_[static_cast<std::size_t>(a)];
    if (pl.reg < 0 || pl.hoisted || !dies(a)) continue;
    if (reg < 0) {
      reg = pl.reg;
      owner_[static_cast<std::size_t>(reg)] = i;
      place_[static_cast<std::size_t>(i)].reg = reg;
    } else if (pl.reg != reg) {
      release(pl.reg);
    }
    pl.reg = -1;
  }
  return reg >= 0 ? reg : take(i);
}

int Emitter::width() const {
  int most = 0;
  const int n = static_cast<int>(e_.code.size());
  for (int i = 0; i < n; ++i) {
    int live = 0;
    for (int v = 0; v <= i; ++v) {
      if (is_imm(e_.code[static_cast<std::size_t>(v)].op)) continue;
      const auto& u = uses_[static_cast<std::size_t>(v)];
      if (!u.empty() && u.back() > i) ++live;
    }
    most = std::max(most, live);
  }
  return most;
}

// Constants that every pixel needs go to registers for the whole tile, first those that an instruction cannot take from memory.
void Emitter::hoist() {
  hoisted_.clear();
  order_reg_ = -1;
  int budget = static_cast<int>(free_.size()) - std::max(3, width() + 2);
  const auto grab = [&] {
    const int r = free_.back();
    free_.pop_back();
    --budget;
    return r;
  };
  const int n = static_cast<int>(e_.code.size());
  std::vector<int> must(e_.code.size(), 0);
  const auto in_memory = [&](int a) {
    return a >= 0 && (is_imm(e_.code[static_cast<std::size_t>(a)].op) || is_load(e_.code[static_cast<std::size_t>(a)].op));
  };
  for (int i = 0; i < n; ++i) {
    const Instr& in = e_.code[static_cast<std::size_t>(i)];
    const auto count = [&](int a) {
      if (in_memory(a)) ++must[static_cast<std::size_t>(a)];
    };
    if (in.reversed) {
      count(in.args[1]);
    } else if (in.op == Op::fma) {
      if (in_memory(in.args[0])) {
        count(in.args[0]);
      } else if (in_memory(in.args[1]) && in_memory(in.args[2])) {
        count(in.args[1]);
      }
    } else if (in.op == Op::sel_lt || in.op == Op::sel_eq) {
      count(in.args[0]);
      count(in.args[3]);
    } else if (!is_source(in.op) && !(commutes(in.op) && !in_memory(in.args[1]))) {
      count(in.args[0]);
    }
  }
  if (e_.pack.output >= 0 && budget > 0) {
    order_reg_ = grab();
    c_.vmovdqa64(Xbyak::Zmm(order_reg_), pool_.block([] {
      std::array<std::uint8_t, 64> idx{};
      for (std::size_t v = 0; v < 4; ++v) {
        for (std::size_t lane = 0; lane < 4; ++lane) idx[(4 * v + lane) * 4] = static_cast<std::uint8_t>(4 * lane + v);
      }
      return idx;
    }()));
  }
  for (int pass = 0; pass < 3; ++pass) {
    for (int i = 0; i < n; ++i) {
      const Instr& in = e_.code[static_cast<std::size_t>(i)];
      const auto k = static_cast<std::size_t>(i);
      if (!in_memory(i) || uses_[k].empty()) continue;
      const bool per_channel = is_load(in.op) && operand_of(i).access == Access::channel;
      const bool invariant = is_imm(in.op) || operand_of(i).access == Access::uniform || per_channel;
      if (!invariant || hoisted_.count({i, per_channel ? 0 : -1}) != 0) continue;
      const bool converts = is_load(in.op) && operand_of(i).dtype != ir::DType::f32 && operand_of(i).dtype != ir::DType::s32;
      const int cost = per_channel ? tile_.vectors : 1;
      if (cost > budget || tile_.pixels == 1) continue;
      if (pass == 0 && (per_channel || !(must[k] > 0 || converts))) continue;
      if (pass == 1 && !(must[k] > 0 || converts)) continue;
      for (int v = 0; v < cost; ++v) {
        const int r = grab();
        if (is_imm(in.op)) {
          c_.vpbroadcastd(Xbyak::Zmm(r), pool_.one(in.imm));
        } else {
          load_into(r, i, 0, v);
        }
        hoisted_[{i, per_channel ? v : -1}] = r;
      }
    }
  }
}

void Emitter::place_sources(int v) {
  place_.assign(e_.code.size(), Place{});
  owner_.fill(-1);
  pinned_.fill(false);
  for (std::size_t i = 0; i < e_.code.size(); ++i) {
    const Op op = e_.code[i].op;
    if (!is_imm(op) && !is_load(op)) continue;
    place_[i].home = is_imm(op) ? Home::constant : Home::memory;
    for (int key : {-1, v}) {
      const auto it = hoisted_.find({static_cast<int>(i), key});
      if (it == hoisted_.end()) continue;
      place_[i].reg = it->second;
      place_[i].hoisted = true;
      owner_[static_cast<std::size_t>(it->second)] = static_cast<int>(i);
    }
  }
}

void Emitter::compute(int i) {
  const Instr& in = e_.code[static_cast<std::size_t>(i)];
  const int a = in.args[0], b = in.args[1], c = in.args[2], d = in.args[3];
  const auto Z = [](int r) { return Xbyak::Zmm(r); };
  const auto has_reg = [this](int v) { return place_[static_cast<std::size_t>(v)].reg >= 0; };
  const auto one = [&](auto f) { with_source(a, [&](const auto& src) { f(destination(i, {a}), src); }); };
  const auto two = [&](auto f) {
    int x = a, y = b;
    if (in.reversed || (commutes(in.op) && !has_reg(x) && has_reg(y))) std::swap(x, y);
    const int rx = in_register(x);
    with_source(y, [&](const auto& src) { f(Z(destination(i, {x, y})), Z(rx), src); });
  };
  switch (in.op) {
    case Op::i2f: one([&](int r, const auto& s) { c_.vcvtdq2ps(Z(r), s); }); break;
    case Op::f2i: one([&](int r, const auto& s) { c_.vcvtps2dq(Z(r), s); }); break;
    case Op::sqrt: one([&](int r, const auto& s) { c_.vsqrtps(Z(r), s); }); break;
    case Op::round: one([&](int r, const auto& s) { c_.vrndscaleps(Z(r), s, 8); }); break;
    case Op::floor: one([&](int r, const auto& s) { c_.vrndscaleps(Z(r), s, 9); }); break;
    case Op::ceil: one([&](int r, const auto& s) { c_.vrndscaleps(Z(r), s, 10); }); break;
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
    case Op::and_i: two([&](auto r, auto x, const auto& s) { c_.vpandd(r, x, s); }); break;
    case Op::or_i: two([&](auto r, auto x, const auto& s) { c_.vpord(r, x, s); }); break;
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
      c_.vcmpps(c_.k2, Z(x), Z(x), 7);  // ordered
      c_.vmovaps(Z(destination(i, {a})) | c_.k2 | Xbyak::util::T_z, Z(x));
      break;
    }
    case Op::to_f16: {
      const int x = in_register(a);
      const int r = take(i);
      canonical_nan(r, x);
      c_.vcvtps2ph(Xbyak::Ymm(r), Z(r), 0);
      c_.vcvtph2ps(Z(r), Xbyak::Ymm(r));
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
      with_source(b, [&](const auto& src) { c_.vcmpps(c_.k2, Z(x), src, in.op == Op::sel_lt ? 0x11 : 0x00); });
      const int other = in_register(d);
      with_source(c, [&](const auto& src) { c_.vblendmps(Z(destination(i, {c, d, a, b})) | c_.k2, Z(other), src); });
      break;
    }
    case Op::fma: {
      int x = a, y = b;  // x stays in a register or becomes the result, y may come from memory
      if (!has_reg(x) && has_reg(y)) std::swap(x, y);
      const auto ends = [&](int v) { return has_reg(v) && dies(v) && !place_[static_cast<std::size_t>(v)].hoisted; };
      if (!ends(x) && ends(y)) std::swap(x, y);
      const int rx = in_register(x);
      if (!ends(x) && ends(c) && c != x && c != y) {  // result in c's register
        const int rc = in_register(c);
        with_source(y, [&](const auto& src) { c_.vfmadd231ps(Z(rc), Z(rx), src); });
        destination(i, {c, x, y});
        break;
      }
      if (ends(x) && x != y && x != c) {  // result in x's register
        if (has_reg(y) || place_[static_cast<std::size_t>(c)].reg < 0) {
          const int ry = in_register(y);
          with_source(c, [&](const auto& src) { c_.vfmadd213ps(Z(rx), Z(ry), src); });
        } else {
          const int rc = in_register(c);
          with_source(y, [&](const auto& src) { c_.vfmadd132ps(Z(rx), Z(rc), src); });
        }
        destination(i, {x, y, c});
        break;
      }
      const int ry = in_register(y), r = take(i);
      c_.vmovaps(Z(r), Z(rx));
      with_source(c, [&](const auto& src) { c_.vfmadd213ps(Z(r), Z(ry), src); });
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

int Emitter::evaluate(int p, int v) {
  p_ = p;
  v_ = v;
  place_sources(v);
  const int n = static_cast<int>(e_.code.size());
  bool acc_used = false;
  for (now_ = 0; now_ < n; ++now_) {
    const Instr& in = e_.code[static_cast<std::size_t>(now_)];
    if (in.op == Op::acc_i || in.op == Op::acc_f) {
      place_[static_cast<std::size_t>(now_)].reg = tile_.acc(p, v);
      owner_[static_cast<std::size_t>(tile_.acc(p, v))] = now_;
      acc_used = true;
      continue;
    }
    if (is_source(in.op)) continue;
    compute(now_);
    for (int a : in.args) {  // what ended here and was not reused
      if (a < 0 || !dies(a)) continue;
      Place& pl = place_[static_cast<std::size_t>(a)];
      if (pl.reg < 0 || pl.hoisted) continue;
      release(pl.reg);
      pl.reg = -1;
    }
    pinned_.fill(false);
  }
  now_ = n;
  if (!acc_used) release(tile_.acc(p, v));
  for (std::size_t j = 0; j < e_.outputs.size(); ++j) {
    if (static_cast<int>(j) == e_.pack.output) continue;
    store(static_cast<int>(j), in_register(e_.outputs[j].value));
    pinned_.fill(false);
  }
  int result = -1;
  if (e_.pack.output >= 0) {
    const int value = e_.pack.value;
    result = in_register(value);
    Place& pl = place_[static_cast<std::size_t>(value)];
    if (pl.hoisted) {
      const int copy = take(-1);
      c_.vmovdqa32(Xbyak::Zmm(copy), Xbyak::Zmm(result));
      result = copy;
    } else {
      owner_[static_cast<std::size_t>(result)] = -1;
      pl.reg = -1;
    }
  }
  for (std::size_t i = 0; i < place_.size(); ++i) {
    if (place_[i].reg >= 0 && !place_[i].hoisted) release(place_[i].reg);
  }
  return result;
}

void Emitter::begin(const Tile& tile, int free_first, bool few_pointers) {
  tile_ = tile;
  free_.clear();
  for (int r = 31; r >= free_first; --r) free_.push_back(r);
  pointer_regs_ = few_pointers ? 5 : 12;
  pointer_pixel_.assign(static_cast<std::size_t>(e_.stream_count()), -1);
  groups_.clear();
  steps_.clear();
  // Four vectors share a pack: one pixel of 3 or 4 vectors, two of 2, four of 1.
  const int together = e_.pack.output < 0 || tile.vectors > 2 ? 1 : 4 / tile.vectors;
  for (int p = 0; p < tile.pixels; p += together) {
    Group& group = groups_.emplace_back();
    for (int q = p; q < std::min(tile.pixels, p + together); ++q) {
      for (int v = 0; v < tile.vectors; ++v) {
        steps_.push_back({groups_.size() - 1, static_cast<int>(group.members.size())});
        group.members.emplace_back(q, v);
      }
    }
    if (e_.pack.output >= 0) steps_.push_back({groups_.size() - 1, -1});
  }
  c_.mov(c_.rsi, c_.ptr[c_.rdi + static_cast<int>(offsetof(TileArgs, table))]);
  hoist();
}

void Emitter::step(int i) {
  const Step& s = steps_[static_cast<std::size_t>(i)];
  Group& group = groups_[s.group];
  if (s.member < 0) return pack(group);
  const auto [p, v] = group.members[static_cast<std::size_t>(s.member)];
  const int r = evaluate(p, v);
  if (r >= 0) group.regs[static_cast<std::size_t>(s.member)] = r;
}

void Emitter::emit(const Tile& tile) {
  begin(tile, tile.first + tile.accs(), false);
  for (int i = 0; i < steps(); ++i) step(i);
}

}  // namespace octavo::cpu::avx512
