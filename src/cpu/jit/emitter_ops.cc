// Loads, stores, tables, packing: the instruction sequences of the emitter.
// One class, past 400 lines: sequences for every type of element, at two widths of vectors.
#include <algorithm>
#include <array>
#include <cstddef>

#include "cpu/jit/emitter.h"

namespace octavo::cpu::jit {
namespace {

using ir::DType;
using Xbyak::Reg64;
using Xbyak::Xmm;
using Xbyak::Ymm;
using Xbyak::Zmm;

void broadcast_eax(Code& c, const Xmm& r) {
  if (r.isZMM()) {
    c.vpbroadcastd(Zmm(r.getIdx()), c.eax);
    return;
  }
  c.vmovd(Xmm(r.getIdx()), c.eax);
  c.vpbroadcastd(r, Xmm(r.getIdx()));
}

}  // namespace

std::array<std::uint8_t, 64> each_byte(std::int32_t value) {
  std::array<std::uint8_t, 64> out{};
  out.fill(static_cast<std::uint8_t>(value & 255));
  return out;
}

std::array<std::uint8_t, 64> each_dword(std::int32_t value) {
  std::array<std::uint8_t, 64> out{};
  for (std::size_t i = 0; i < 64; ++i) out[i] = static_cast<std::uint8_t>(static_cast<std::uint32_t>(value) >> (i % 4 * 8));
  return out;
}

std::array<std::uint8_t, 64> first_dwords(int tail) {
  std::array<std::uint8_t, 64> out{};
  std::fill_n(out.begin(), tail * 4, static_cast<std::uint8_t>(255));
  return out;
}

std::array<std::uint8_t, 64> each_word(std::int32_t value) {
  std::array<std::uint8_t, 64> out{};
  const auto w = static_cast<std::uint16_t>(value);
  for (std::size_t i = 0; i < 64; i += 2) {
    out[i] = static_cast<std::uint8_t>(w & 255U);
    out[i + 1] = static_cast<std::uint8_t>(w >> 8U);
  }
  return out;
}

std::array<std::uint8_t, 64> natural_order() {
  std::array<std::uint8_t, 64> idx{};
  for (std::size_t v = 0; v < 4; ++v) {
    for (std::size_t lane = 0; lane < 4; ++lane) idx[(4 * v + lane) * 4] = static_cast<std::uint8_t>(4 * lane + v);
  }
  return idx;
}

void clear(Code& c, const Xmm& r) {
  r.isZMM() ? c.vpxord(r, r, r) : c.vxorps(r, r, r);
}

void enter(Code& c, int stack_bytes) {
  for (const auto& r : {c.rbx, c.rbp, c.r12, c.r13, c.r14, c.r15}) c.push(r);
  if (stack_bytes == 0) return;
  c.mov(c.rax, c.rsp);  // kept behind the space, which begins at a cache line
  c.sub(c.rsp, stack_bytes + 64);
  c.and_(c.rsp, -64);
  c.mov(c.ptr[c.rsp + stack_bytes], c.rax);
}

void leave(Code& c, int stack_bytes) {
  if (stack_bytes > 0) c.mov(c.rsp, c.ptr[c.rsp + stack_bytes]);
  for (const auto& r : {c.r15, c.r14, c.r13, c.r12, c.rbp, c.rbx}) c.pop(r);
  c.vzeroupper();
  c.ret();
}

void ConstantPool::emit() {
  c_.align(64);
  for (auto& [bytes, label] : blocks_) {
    c_.L(label);
    for (auto b : bytes) c_.db(b);
  }
  for (auto& [key, label] : tables_) {
    c_.L(label);
    for (auto b : key.first) {
      c_.db(b);
      if (key.second) c_.db(0), c_.db(0), c_.db(0);
    }
  }
  for (auto& [bits, label] : dwords_) {
    c_.L(label);
    c_.dd(static_cast<std::uint32_t>(bits));
  }
}

void Emitter::masks(const Tile& tile) {
  if (!wide()) return;  // they are in the constant pool
  if (tile.tail != 16) {
    c_.mov(c_.eax, (1U << static_cast<unsigned>(tile.tail)) - 1U);
    c_.kmovd(c_.k1, c_.eax);
    const int bytes = (tile.vectors - 1) * 16 + tile.tail;
    c_.mov(c_.rax, (std::uint64_t{1} << static_cast<unsigned>(bytes)) - 1U);
    c_.kmovq(c_.k3, c_.rax);
  }
  c_.mov(c_.rax, std::uint64_t{0x1111111111111111});
  c_.kmovq(c_.k4, c_.rax);
  if (e_.window > 0) {  // the low words of dwords
    c_.mov(c_.eax, 0x55555555);
    c_.kmovd(c_.k5, c_.eax);
  }
}

Reg64 Emitter::pointer(int stream, int pixel) {
  const std::array<Reg64, 12> regs{c_.rbx, c_.rbp, c_.rcx, c_.rdx, c_.r15, c_.r8, c_.r9, c_.r10, c_.r11, c_.r12, c_.r13, c_.r14};
  const Stream& s = e_.stream(stream);
  const int wanted = s.column < 0 ? -1 : pixel;
  std::size_t oldest = 0;
  for (std::size_t k = 0; k < pointers_.size(); ++k) {
    Pointer& p = pointers_[k];
    if (p.stream == stream && p.pixel == wanted) {
      p.last_use = ++clock_;
      return regs[k];
    }
    if (p.last_use < pointers_[oldest].last_use) oldest = k;
  }
  const Reg64 r = regs[oldest];
  pointers_[oldest] = {stream, wanted, ++clock_};
  if (s.column < 0) {
    c_.mov(r, c_.ptr[c_.rdi + kArgsStream + stream * 8]);
  } else {
    c_.movsxd(r, c_.dword[c_.rsi + (pixel * e_.columns + s.column) * 4]);
    c_.add(r, c_.ptr[c_.rdi + kArgsStream + stream * 8]);
  }
  return r;
}

Xbyak::Address Emitter::element(int stream, int p, int v) {
  const Stream& s = e_.stream(stream);
  const Reg64 r = pointer(stream, p);
  const bool vector = s.access == OperandAccess::channel || s.access == OperandAccess::full;
  return c_.ptr[r + (vector ? v * e_.lanes * static_cast<int>(ir::size_of(s.dtype)) : 0)];
}

void Emitter::load_order(int reg) {
  c_.vmovdqa64(Zmm(reg), pool_.block(e_.window > 0 ? third_bytes() : natural_order()));
}

void Emitter::load_into(int reg, int value, int p, int v) {
  const Stream& s = operand_of(value);
  const auto from = element(e_.code[static_cast<std::size_t>(value)].imm, p, v);
  if (!wide() && (s.access == OperandAccess::channel || s.access == OperandAccess::full) && masked(v)) {
    if (ir::size_of(s.dtype) < 4) return load_narrow_tail(reg, s.dtype, from);
    c_.vmovups(Ymm(reg), pool_.block(first_dwords(tile_.tail)));
    c_.vmaskmovps(Ymm(reg), Ymm(reg), from);
    return;
  }
  if (s.access == OperandAccess::channel || s.access == OperandAccess::full) {
    const Xmm to = !wide() ? this->reg(reg) : masked(v) && !padded(value) ? Zmm(reg) | c_.k1 | Xbyak::util::T_z : Zmm(reg);
    switch (s.dtype) {
      case DType::u8:
      case DType::boolean: c_.vpmovzxbd(to, from); break;
      case DType::s8: c_.vpmovsxbd(to, from); break;
      case DType::f16: c_.vcvtph2ps(to, from); break;
      case DType::bf16:
        c_.vpmovzxwd(to, from);
        c_.vpslld(this->reg(reg), this->reg(reg), 16);
        break;
      default: c_.vmovups(to, from); break;
    }
    return;
  }
  const auto where = from.getRegExp();
  switch (s.dtype) {
    case DType::u8:
    case DType::boolean:
      c_.movzx(c_.eax, c_.byte[where]);
      broadcast_eax(c_, this->reg(reg));
      break;
    case DType::s8:
      c_.movsx(c_.eax, c_.byte[where]);
      broadcast_eax(c_, this->reg(reg));
      break;
    case DType::f16:
      c_.movzx(c_.eax, c_.word[where]);
      c_.vmovd(Xmm(reg), c_.eax);
      c_.vcvtph2ps(Xmm(reg), Xmm(reg));
      c_.vbroadcastss(this->reg(reg), Xmm(reg));
      break;
    case DType::bf16:
      c_.movzx(c_.eax, c_.word[where]);
      c_.shl(c_.eax, 16);
      broadcast_eax(c_, this->reg(reg));
      break;
    default: c_.vpbroadcastd(this->reg(reg), from); break;
  }
}

void load_codes_tail(Code& c, int reg, const Xbyak::Address& from, int tail) {
  const auto where = from.getRegExp();
  c.vpxor(Xmm(reg), Xmm(reg), Xmm(reg));
  for (int i = 0; i < tail; ++i) c.vpinsrb(Xmm(reg), Xmm(reg), c.byte[where + i], static_cast<std::uint8_t>(i));
  c.vpmovzxbd(Ymm(reg), Xmm(reg));
}

/// The first channels of a vector of eight, of elements of 8 or 16 bits: one by one, so that nothing behind them is read.
void Emitter::load_narrow_tail(int reg, DType type, const Xbyak::Address& from) {
  const auto where = from.getRegExp();
  const bool bytes = ir::size_of(type) == 1;
  c_.vpxor(Xmm(reg), Xmm(reg), Xmm(reg));
  for (int i = 0; i < tile_.tail; ++i) {
    if (bytes) {
      c_.vpinsrb(Xmm(reg), Xmm(reg), c_.byte[where + i], static_cast<std::uint8_t>(i));
    } else {
      c_.vpinsrw(Xmm(reg), Xmm(reg), c_.word[where + 2 * i], static_cast<std::uint8_t>(i));
    }
  }
  switch (type) {
    case DType::s8: c_.vpmovsxbd(Ymm(reg), Xmm(reg)); break;
    case DType::f16: c_.vcvtph2ps(Ymm(reg), Xmm(reg)); break;
    case DType::bf16:
      c_.vpmovzxwd(Ymm(reg), Xmm(reg));
      c_.vpslld(Ymm(reg), Ymm(reg), 16);
      break;
    default: c_.vpmovzxbd(Ymm(reg), Xmm(reg)); break;
  }
}

void Emitter::table(int dst, int index, int which) {
  const auto& t = e_.tables[static_cast<std::size_t>(which)];
  if (!wide()) {
    const int clean = take(-1), all = take(-1);
    c_.lea(c_.rax, pool_.table(t, true, 0));
    c_.vandps(reg(clean), reg(index), pool_.each_lane(255));  // interpret() looks at the low byte only
    c_.vpcmpeqd(reg(all), reg(all), reg(all));
    c_.vpgatherdd(reg(dst), c_.ptr[c_.rax + Ymm(clean) * 4], reg(all));
    release(all);
    release(clean);
    return;
  }
  if (!vbmi_) {
    c_.lea(c_.rax, pool_.table(t, true, 0));
    const int clean = take(-1);  // interpret() looks at the low byte only
    c_.vpandd(Zmm(clean), Zmm(index), pool_.each_lane(255));
    c_.vpxord(Zmm(dst), Zmm(dst), Zmm(dst));
    c_.kxnorw(c_.k2, c_.k2, c_.k2);
    c_.vpgatherdd(Zmm(dst) | c_.k2, c_.ptr[c_.rax + Zmm(clean) * 4]);
    release(clean);
    return;
  }
  const int high = take(-1);
  c_.vmovdqa64(Zmm(dst), pool_.table(t, false, 0));
  c_.vpermt2b(Zmm(dst), Zmm(index), pool_.table(t, false, 64));
  c_.vmovdqa64(Zmm(high), pool_.table(t, false, 128));
  c_.vpermt2b(Zmm(high), Zmm(index), pool_.table(t, false, 192));
  c_.vpmovb2m(c_.k2, Zmm(index));
  c_.vmovdqu8(Zmm(dst) | c_.k2, Zmm(high));
  c_.vmovdqu8(Zmm(dst) | c_.k4 | Xbyak::util::T_z, Zmm(dst));
  release(high);
}

void Emitter::canonical_nan(int dst, int src) {
  if (!wide()) {
    const int ordered = take(-1);
    c_.vandps(reg(dst), reg(src), pool_.each_lane(INT32_MIN));
    c_.vorps(reg(dst), reg(dst), pool_.each_lane(0x7fc00000));
    c_.vcmpps(reg(ordered), reg(src), reg(src), 7);
    c_.vblendvps(reg(dst), reg(dst), reg(src), reg(ordered));
    release(ordered);
    return;
  }
  c_.vpandd(Zmm(dst), Zmm(src), pool_.each_lane(INT32_MIN));
  c_.vpord(Zmm(dst), Zmm(dst), pool_.each_lane(0x7fc00000));
  c_.vcmpps(c_.k2, Zmm(src), Zmm(src), 7);  // ordered
  c_.vmovaps(Zmm(dst) | c_.k2, Zmm(src));
}

void Emitter::round_bf16(int dst, int src) {
  if (e_.narrows) {
    c_.vcvtneps2bf16(Ymm(dst), Zmm(src));
    c_.vpmovzxwd(Zmm(dst), Ymm(dst));
    c_.vpslld(Zmm(dst), Zmm(dst), 16);
    return;
  }
  const int nan = take(-1);
  if (!wide()) {
    const int unordered = take(-1);
    c_.vorps(reg(nan), reg(src), pool_.each_lane(0x00400000));
    c_.vpsrld(reg(dst), reg(src), 16);
    c_.vandps(reg(dst), reg(dst), pool_.each_lane(1));
    c_.vpaddd(reg(dst), reg(dst), pool_.each_lane(0x7fff));
    c_.vpaddd(reg(dst), reg(dst), reg(src));
    c_.vcmpps(reg(unordered), reg(src), reg(src), 3);
    c_.vblendvps(reg(dst), reg(dst), reg(nan), reg(unordered));
    c_.vandps(reg(dst), reg(dst), pool_.each_lane(static_cast<std::int32_t>(0xffff0000U)));
    release(unordered);
    release(nan);
    return;
  }
  c_.vpord(Zmm(nan), Zmm(src), pool_.each_lane(0x00400000));
  c_.vpsrld(Zmm(dst), Zmm(src), 16);
  c_.vpandd(Zmm(dst), Zmm(dst), pool_.each_lane(1));
  c_.vpaddd(Zmm(dst), Zmm(dst), pool_.each_lane(0x7fff));
  c_.vpaddd(Zmm(dst), Zmm(dst), Zmm(src));
  c_.vcmpps(c_.k2, Zmm(src), Zmm(src), 3);  // unordered
  c_.vmovdqa32(Zmm(dst) | c_.k2, Zmm(nan));
  c_.vpandd(Zmm(dst), Zmm(dst), pool_.each_lane(static_cast<std::int32_t>(0xffff0000U)));
  release(nan);
}

/// The first channels of a vector of eight. (A masked store takes dozens of micro-operations on some processors.)
void Emitter::store_tail(const Xbyak::Address& to, int reg) {
  const auto where = to.getRegExp();
  int from = reg, done = 0;
  const int spare = tile_.tail % 4 == 0 ? -1 : take(-1);
  if ((tile_.tail & 4) != 0) {
    c_.vmovups(c_.ptr[where], Xmm(reg));
    done = 4;
    if (spare >= 0) c_.vextractf128(Xmm(spare), Ymm(reg), 1), from = spare;
  }
  if ((tile_.tail & 2) != 0) {
    c_.vmovlps(c_.ptr[where + done * 4], Xmm(from));
    done += 2;
    if ((tile_.tail & 1) != 0) c_.vpermilps(Xmm(spare), Xmm(from), 2), from = spare;
  }
  if ((tile_.tail & 1) != 0) c_.vmovss(c_.ptr[where + done * 4], Xmm(from));
  if (spare >= 0) release(spare);
}

/// The first channels of eight elements of 8 or 16 bits that are side by side in xmm `reg`, which is overwritten.
void Emitter::store_narrow_tail(const Xbyak::Address& to, int reg, int bytes_each) {
  const auto where = to.getRegExp();
  const Xmm x(reg);
  const int bytes = tile_.tail * bytes_each;
  int done = 0;
  const auto next = [&](int n) {
    done += n;
    if (done < bytes) c_.vpsrldq(x, x, static_cast<std::uint8_t>(n));
  };
  if ((bytes & 8) != 0) c_.vmovq(c_.ptr[where], x), next(8);
  if ((bytes & 4) != 0) c_.vmovd(c_.dword[where + done], x), next(4);
  if ((bytes & 2) != 0) c_.vpextrw(c_.word[where + done], x, 0), next(2);
  if ((bytes & 1) != 0) c_.vpextrb(c_.byte[where + done], x, 0);
}

/// The low bytes of a vector of eight.
void Emitter::store_bytes(const Xbyak::Address& to, int reg) {
  const int low = take(-1), high = take(-1);
  c_.vandps(Ymm(low), Ymm(reg), pool_.each_lane(255));
  c_.vextracti128(Xmm(high), Ymm(low), 1);
  c_.vpackusdw(Xmm(low), Xmm(low), Xmm(high));
  c_.vpackuswb(Xmm(low), Xmm(low), Xmm(low));
  masked(v_) ? store_narrow_tail(to, low, 1) : c_.vmovlps(to, Xmm(low));
  release(high);
  release(low);
}

void Emitter::store(int j, int reg) {
  const int s = static_cast<int>(e_.operands.size()) + j;
  auto to = element(s, p_, v_);
  const DType type = e_.stores[static_cast<std::size_t>(j)].dtype;
  if (masked(v_) && !wide() && ir::size_of(type) == 4) return store_tail(to, reg);
  if (masked(v_) && wide()) to = to | c_.k1;
  switch (type) {
    case DType::u8:
    case DType::s8:
    case DType::boolean: wide() ? c_.vpmovdb(to, Zmm(reg)) : store_bytes(to, reg); break;
    case DType::f16: {
      const int t = take(-1);
      canonical_nan(t, reg);
      if (masked(v_) && !wide()) {
        c_.vcvtps2ph(Xmm(t), Ymm(t), 0);
        store_narrow_tail(to, t, 2);
      } else {
        c_.vcvtps2ph(to, this->reg(t), 0);
      }
      release(t);
      break;
    }
    case DType::bf16: {
      const int t = take(-1);
      if (e_.narrows) {
        c_.vcvtneps2bf16(Ymm(t), Zmm(reg));
        c_.vmovdqu16(to, Ymm(t));
        release(t);
        break;
      }
      round_bf16(t, reg);
      c_.vpsrld(this->reg(t), this->reg(t), 16);
      if (wide()) {
        c_.vpmovdw(to, Zmm(t));
      } else {
        const int high = take(-1);
        c_.vextracti128(Xmm(high), Ymm(t), 1);
        c_.vpackusdw(Xmm(t), Xmm(t), Xmm(high));
        masked(v_) ? store_narrow_tail(to, t, 2) : c_.vmovups(to, Xmm(t));
        release(high);
      }
      release(t);
      break;
    }
    default: c_.vmovups(to, this->reg(reg)); break;
  }
}

void Emitter::pack_written(const Group& g) {
  const Pack& k = e_.pack;
  const auto& group = g.members;
  const auto& regs = g.regs;
  const std::size_t n = group.size();
  const auto add_zero = [&](int r) {
    if (k.zero != 0) c_.vpaddsw(Zmm(r), Zmm(r), pool_.block(each_word(k.zero)));
  };
  const int a = regs[0];
  c_.vpackssdw(Zmm(a), Zmm(a), Zmm(n > 1 ? regs[1] : a));
  add_zero(a);
  int c = a;
  if (n > 2) {
    c = regs[2];
    c_.vpackssdw(Zmm(c), Zmm(c), Zmm(n > 3 ? regs[3] : c));
    add_zero(c);
  }
  if (k.is_signed) {
    c_.vpacksswb(Zmm(a), Zmm(a), Zmm(c));
    if (k.lo > -128) c_.vpmaxsb(Zmm(a), Zmm(a), pool_.block(each_byte(k.lo)));
    if (k.hi < 127) c_.vpminsb(Zmm(a), Zmm(a), pool_.block(each_byte(k.hi)));
  } else {
    c_.vpackuswb(Zmm(a), Zmm(a), Zmm(c));
    if (k.lo > 0) c_.vpmaxub(Zmm(a), Zmm(a), pool_.block(each_byte(k.lo)));
    if (k.hi < 255) c_.vpminub(Zmm(a), Zmm(a), pool_.block(each_byte(k.hi)));
  }
  for (std::size_t i = 1; i < n; ++i) release(regs[i]);
  if (order_reg_ >= 0) {
    c_.vpermd(Zmm(a), Zmm(order_reg_), Zmm(a));
  } else {
    const int order = take(-1);
    load_order(order);
    c_.vpermd(Zmm(a), Zmm(order), Zmm(a));
    release(order);
  }
}

void Emitter::pack(const Group& g) {
  const Pack& k = e_.pack;
  const int a = g.regs[0];
  Open* open = nullptr;
  const auto known = pointers_;
  if (e_.window > 0) {
    open = &open_curve(g);
  } else {
    pack_written(g);
  }
  for (std::size_t i = 0; i < k.sinks.size(); ++i) {
    const auto& sink = k.sinks[i];
    const bool last = i + 1 == k.sinks.size();
    const int out = sink.table < 0 ? a : look_up(sink.table, a);
    store_packed(g, sink.output, out);
    if (out != a) release(out);
    if (last) release(a);
  }
  if (open == nullptr) return;
  c_.L(open->to);
  for (std::size_t i = 0; i < pointers_.size(); ++i) {  // what was loaded since the jump
    if (pointers_[i].stream != known[i].stream || pointers_[i].pixel != known[i].pixel) pointers_[i] = {};
  }
}

/// A register with the table's entries for 64 packed indices.
int Emitter::look_up(int which, int index) {
  const auto& t = e_.tables[static_cast<std::size_t>(which)];
  if (const auto half = HalfTable::of(t); half.offset >= 0) {
    const auto bound = each_byte(half.bound);
    const int out = take(-1), at = take(-1);
    if (half.offset > 0) {
      c_.vpmaxub(Zmm(at), Zmm(index), pool_.block(bound));
    } else {
      c_.vpminub(Zmm(at), Zmm(index), pool_.block(bound));
    }
    c_.vmovdqa64(Zmm(out), pool_.table(t, false, half.offset));
    c_.vpermt2b(Zmm(out), Zmm(at), pool_.table(t, false, half.offset + 64));
    release(at);
    return out;
  }
  const int high = take(-1), out = take(-1);
  c_.vmovdqa64(Zmm(out), pool_.table(t, false, 0));
  c_.vpermt2b(Zmm(out), Zmm(index), pool_.table(t, false, 64));
  c_.vmovdqa64(Zmm(high), pool_.table(t, false, 128));
  c_.vpermt2b(Zmm(high), Zmm(index), pool_.table(t, false, 192));
  c_.vpmovb2m(c_.k2, Zmm(index));
  c_.vmovdqu8(Zmm(out) | c_.k2, Zmm(high));
  release(high);
  return out;
}

/// The group's bytes to output j.
void Emitter::store_packed(const Group& g, int j, int out) {
  const auto& group = g.members;
  const std::size_t n = group.size();
  const int stream = static_cast<int>(e_.operands.size()) + j;
  const int per_pixel = tile_.vectors;
  for (std::size_t i = 0; i < n; i += static_cast<std::size_t>(per_pixel)) {
    const auto to = c_.ptr[pointer(stream, group[i].first)];
    const auto chunk = static_cast<std::uint8_t>(i);
    int from = out;  // the pixel's bytes at the bottom of a register
    const bool whole = tile_.tail == 16;
    if (i > 0 && (!whole || per_pixel == 2)) {
      if (!whole) from = take(-1);
      if (per_pixel == 2) {
        if (whole) {
          c_.vextracti64x4(to, Zmm(out), 1);
          continue;
        }
        c_.vextracti64x4(Ymm(from), Zmm(out), 1);
      } else {
        c_.vextracti32x4(Xmm(from), Zmm(out), chunk);
      }
    }
    if (!whole) {
      c_.vmovdqu8(to | c_.k3, Zmm(from));
      if (from != out) release(from);
    } else if (per_pixel == 4) {
      c_.vmovdqu64(to, Zmm(out));
    } else if (per_pixel == 3) {
      c_.vmovdqu64(to, Ymm(out));
      c_.vextracti32x4(c_.ptr[to.getRegExp() + 32], Zmm(out), 2);
    } else if (per_pixel == 2) {
      c_.vmovdqu64(to, Ymm(out));
    } else if (i == 0) {
      c_.vmovdqu64(to, Xmm(out));
    } else {
      c_.vextracti32x4(to, Zmm(out), chunk);
    }
  }
}

}  // namespace octavo::cpu::jit
