// The end of a curve (curve.h): codes out of packed values, the question whether one is open, and what is computed as written then.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "cpu/jit/emitter.h"

namespace octavo::cpu::jit {
namespace {

using Xbyak::Ymm;
using Xbyak::Zmm;

/// Registers of a group computed as written; those below stay as they are.
constexpr int kFirstOfWritten = 12;

}  // namespace

std::array<std::uint8_t, 64> third_bytes() {
  std::array<std::uint8_t, 64> idx{};
  for (std::size_t i = 0; i < 32; ++i) idx[i] = static_cast<std::uint8_t>(4 * i + 2);
  return idx;
}

std::array<std::uint8_t, 64> Emitter::block_bytes(int block) const {
  std::array<std::uint8_t, 64> bytes{};
  std::memcpy(bytes.data(), e_.blocks[static_cast<std::size_t>(block)].data(), bytes.size());
  return bytes;
}

/// Leaves up to 64 codes in the first register; jumps away where a value is too near to the place where codes change.
Emitter::Open& Emitter::open_curve(const Group& g) {
  const auto& regs = g.regs;
  const std::size_t n = g.members.size();
  // Nothing may go to the stack behind the jump.
  std::array<int, 4> spare{};
  for (int& r : spare) r = take(-1);
  for (std::size_t i = 2; i < spare.size(); ++i) release(spare[i]);
  Open& open = open_.emplace_back();
  open.pixel = g.members.front().first;
  open.pixels = g.members.back().first - open.pixel + 1;
  open.tile = tile_;
  int least = regs[0];
  if (n > 1) c_.vpminuw(Zmm(spare[0]), Zmm(regs[0]), Zmm(regs[1])), least = spare[0];
  if (n == 3) c_.vpminuw(Zmm(spare[0]), Zmm(spare[0]), Zmm(regs[2]));
  if (n == 4) {
    c_.vpminuw(Zmm(spare[1]), Zmm(regs[2]), Zmm(regs[3]));
    c_.vpminuw(Zmm(spare[0]), Zmm(spare[0]), Zmm(spare[1]));
  }
  c_.vpcmpuw(c_.k2 | c_.k5, Zmm(least), pool_.block(each_word(e_.window)), 1);  // less
  c_.kortestd(c_.k2, c_.k2);
  c_.jnz(open.from, Xbyak::CodeGenerator::T_NEAR);
  const int order = order_reg_ >= 0 ? order_reg_ : spare[0];
  if (order_reg_ < 0) load_order(order);
  const int a = regs[0];
  if (n == 1) {
    c_.vpermb(Zmm(a), Zmm(order), Zmm(a));
  } else {
    c_.vpermt2b(Zmm(a), Zmm(order), Zmm(regs[1]));
  }
  if (n > 2) {
    const int c = regs[2];
    if (n == 3) {
      c_.vpermb(Zmm(c), Zmm(order), Zmm(c));
    } else {
      c_.vpermt2b(Zmm(c), Zmm(order), Zmm(regs[3]));
    }
    c_.vinserti64x4(Zmm(a), Zmm(a), Ymm(c), 1);
  }
  for (std::size_t i = 1; i < n; ++i) release(regs[i]);
  release(spare[0]);
  release(spare[1]);
  return open;
}

/// A function of its own: the group whose sums are at r15 and whose table entries are at rsi. Changes nothing but rax, k2 and what
/// is stored.
void Emitter::emit_written(const Tile& tile) {
  Emitter written(c_, pool_, *e_.written, vbmi_);
  const std::array<Xbyak::Reg64, 4> kept{c_.rbx, c_.rcx, c_.rdx, c_.rbp};
  const int stack = written.stack_bytes(), space = stack + (32 - kFirstOfWritten) * 64 + 24;  // 40 bytes are there already
  for (const auto& r : kept) c_.push(r);
  c_.sub(c_.rsp, space);
  for (int r = kFirstOfWritten; r < 32; ++r) c_.vmovups(c_.ptr[c_.rsp + stack + (r - kFirstOfWritten) * 64], Zmm(r));
  written.begin(tile, kFirstOfWritten, true);
  for (int i = 0; i < written.steps(); ++i) written.step(i);
  for (int r = kFirstOfWritten; r < 32; ++r) c_.vmovups(Zmm(r), c_.ptr[c_.rsp + stack + (r - kFirstOfWritten) * 64]);
  c_.add(c_.rsp, space);
  for (std::size_t i = kept.size(); i-- > 0;) c_.pop(kept[i]);
  c_.ret();
}

void Emitter::finish() {
  std::array<Xbyak::Label, 5> functions;  // by pixels
  std::array<const Tile*, 5> tiles{};
  for (Open& o : open_) {
    const auto n = static_cast<std::size_t>(o.pixels);
    tiles[n] = &o.tile;
    const int sums = o.tile.place(o.pixel, 0), entries = o.pixel * e_.columns * 4;
    c_.L(o.from);
    if (sums > 0) c_.add(c_.r15, sums), c_.add(c_.rsi, entries);
    c_.call(functions[n]);
    if (sums > 0) c_.sub(c_.r15, sums), c_.sub(c_.rsi, entries);
    c_.jmp(o.to, Xbyak::CodeGenerator::T_NEAR);
  }
  for (std::size_t n = 1; n < tiles.size(); ++n) {
    if (tiles[n] == nullptr) continue;
    Tile tile = *tiles[n];
    tile.pixels = static_cast<int>(n);
    c_.align(16);
    c_.L(functions[n]);
    emit_written(tile);
  }
  open_.clear();
}

}  // namespace octavo::cpu::jit
