#include "cpu/jit/pipeline.h"

#include <array>
#include <cstddef>

namespace octavo::cpu::jit {
namespace {

void overlap(Emitter& emitter, const Tile& current, int free_first, const std::vector<Unit>& dots) {
  emitter.begin(current, free_first, true);
  std::size_t done = 0;
  for (int i = 0; i < emitter.steps(); ++i) {
    emitter.step(i);
    const std::size_t until = dots.size() * static_cast<std::size_t>(i + 1) / static_cast<std::size_t>(emitter.steps());
    for (; done < until; ++done) dots[done]();
  }
}

}  // namespace

void emit_pipeline(Code& c, Emitter& emitter, const Tile& tile, int columns, int reserved, const UnitsOf& units) {
  const int advance = tile.pixels * columns * 4, temps = 2 * tile.accs();
  std::array<Tile, 2> set{tile, tile};
  set[1].first = tile.accs();
  std::array<Xbyak::Label, 2> last;
  Xbyak::Label loop, done;
  c.mov(c.rsi, c.ptr[c.rdi + kArgsTable]);
  c.mov(c.r15, c.ptr[c.rdi + kArgsTiles]);
  for (const auto& unit : units(set[0], 0)) unit();
  c.align(16);
  c.L(loop);
  for (std::size_t i = 0; i < 2; ++i) {
    c.dec(c.r15);
    c.jz(last[i], Xbyak::CodeGenerator::T_NEAR);
    overlap(emitter, set[i], temps + reserved, units(set[1 - i], advance));
    c.add(c.rsi, advance);
  }
  c.jmp(loop, Xbyak::CodeGenerator::T_NEAR);
  for (std::size_t i = 0; i < 2; ++i) {
    c.L(last[i]);
    overlap(emitter, set[i], temps, {});
    if (i == 0) c.jmp(done, Xbyak::CodeGenerator::T_NEAR);
  }
  c.L(done);
  c.add(c.rsi, advance);
  c.mov(c.ptr[c.rdi + kArgsTable], c.rsi);
}

void emit_stored(Code& c, Emitter& emitter, const Tile& tile) {
  const int stack = emitter.stack_bytes();
  Tile stored = tile;
  stored.in_memory = true;
  for (int i = 0; i < tile.accs(); ++i) c.vmovups(c.ptr[c.rsp + stack + i * 64], vector_register(tile.lanes, i));
  c.lea(c.r15, c.ptr[c.rsp + stack]);
  c.mov(c.rsi, c.ptr[c.rdi + kArgsTable]);
  emitter.begin(stored, 0, true);
  for (int i = 0; i < emitter.steps(); ++i) emitter.step(i);
}

std::size_t emit_tile_loop(Code& c, Emitter& emitter, const Tile& tile, int columns, const Unit& sums) {
  c.align(64);
  const std::size_t start = c.getSize();
  const int stack = emitter.stack_bytes() + (emitter.wants_registers() ? tile.accs() * 64 : 0);
  enter(c, stack);
  emitter.masks(tile);
  Xbyak::Label next;
  c.align(16);
  c.L(next);
  sums();
  if (emitter.wants_registers()) {
    emit_stored(c, emitter, tile);
  } else {
    emitter.emit(tile);
  }
  c.add(c.qword[c.rdi + kArgsTable], tile.pixels * columns * 4);
  c.dec(c.qword[c.rdi + kArgsTiles]);
  c.jnz(next, Xbyak::CodeGenerator::T_NEAR);
  leave(c, stack);
  return start;
}

void start_accumulators(Code& c, const Tile& tile, bool has_init, const Xbyak::Reg64& scratch) {
  if (has_init) c.mov(scratch, c.ptr[c.rdi + kArgsInit]);
  for (int p = 0; p < tile.pixels; ++p) {
    for (int v = 0; v < tile.vectors; ++v) {
      const Xbyak::Xmm acc = vector_register(tile.lanes, tile.acc(p, v));
      if (!has_init) {
        clear(c, acc);
      } else if (p == 0) {
        c.vmovups(acc, c.ptr[scratch + v * tile.lanes * 4]);
      } else {
        c.vmovaps(acc, vector_register(tile.lanes, tile.acc(0, v)));
      }
    }
  }
}

}  // namespace octavo::cpu::jit
