#include <array>
#include <cstddef>

#include "cpu/jit/depthwise.h"
#include "cpu/jit/pipeline.h"

namespace octavo::cpu::jit {
namespace {

using Xbyak::Reg64;
using Xbyak::Zmm;

/// Dword 4 L + v of the result is dword 4 v + L of the source: the unpacks work within 128-bit lanes, and this makes vector v of
/// their results the channels 16 v ... in order.
std::array<std::uint8_t, 64> transposed_dwords() {
  std::array<std::uint8_t, 64> idx{};
  for (std::size_t v = 0; v < 4; ++v) {
    for (std::size_t lane = 0; lane < 4; ++lane) idx[(4 * lane + v) * 4] = static_cast<std::uint8_t>(4 * v + lane);
  }
  return idx;
}

}  // namespace

std::size_t emit_interleave(Code& c, ConstantPool& pool, int vectors, int tail) {
  c.align(64);
  const std::size_t start = c.getSize();
  enter(c, 0);
  const std::array<Reg64, 4> row{c.rbx, c.rcx, c.rdx, c.rsi}, step{c.r8, c.r9, c.r10, c.r11};
  const Reg64 to = c.r12, count = c.r13;
  for (int i = 0; i < 4; ++i) {
    const auto k = static_cast<std::size_t>(i);
    c.mov(row[k], c.ptr[c.rdi + static_cast<int>(offsetof(InterleaveArgs, row)) + 8 * i]);
    c.mov(step[k], c.ptr[c.rdi + static_cast<int>(offsetof(InterleaveArgs, step)) + 8 * i]);
  }
  c.mov(to, c.ptr[c.rdi + static_cast<int>(offsetof(InterleaveArgs, to))]);
  c.mov(count, c.ptr[c.rdi + static_cast<int>(offsetof(InterleaveArgs, count))]);
  const int bytes = (vectors - 1) * 16 + tail;
  const bool whole = bytes == 64;
  if (!whole) {
    c.mov(c.rax, (std::uint64_t{1} << static_cast<unsigned>(bytes)) - 1U);
    c.kmovq(c.k1, c.rax);
  }
  const Zmm index(31);
  c.vmovdqa64(index, pool.block(transposed_dwords()));
  Xbyak::Label next;
  c.align(32);
  c.L(next);
  for (int i = 0; i < 4; ++i) {
    const auto k = static_cast<std::size_t>(i);
    if (whole) {
      c.vpermd(Zmm(i), index, c.ptr[row[k]]);
    } else {
      c.vmovdqu8(Zmm(i) | c.k1 | Xbyak::util::T_z, c.ptr[row[k]]);
      c.vpermd(Zmm(i), index, Zmm(i));
    }
    c.add(row[k], step[k]);
  }
  c.vpunpcklbw(Zmm(4), Zmm(0), Zmm(1));
  c.vpunpcklbw(Zmm(5), Zmm(2), Zmm(3));
  c.vpunpcklwd(Zmm(8), Zmm(4), Zmm(5));
  c.vmovdqa64(c.ptr[to], Zmm(8));
  if (vectors > 1) {
    c.vpunpckhwd(Zmm(9), Zmm(4), Zmm(5));
    c.vmovdqa64(c.ptr[to + 64], Zmm(9));
  }
  if (vectors > 2) {
    c.vpunpckhbw(Zmm(6), Zmm(0), Zmm(1));
    c.vpunpckhbw(Zmm(7), Zmm(2), Zmm(3));
    c.vpunpcklwd(Zmm(10), Zmm(6), Zmm(7));
    c.vmovdqa64(c.ptr[to + 128], Zmm(10));
  }
  if (vectors > 3) {
    c.vpunpckhwd(Zmm(11), Zmm(6), Zmm(7));
    c.vmovdqa64(c.ptr[to + 192], Zmm(11));
  }
  c.add(to, vectors * 64);
  c.dec(count);
  c.jnz(next, Xbyak::CodeGenerator::T_NEAR);
  leave(c, 0);
  return start;
}

namespace {

/// The dots of a tile: pixels row by row, pixel r * columns + k. args.x: the interleaved strip; table column 0: the tile's first
/// column in it. Not pipelined with the epilogue as short convolutions are: measured, it gains nothing here (docs/lab/kernels.md).
void emit_dots(Code& c, const DepthwiseGeometry& d, const DepthwiseTile& s, const Tile& t) {
  const Reg64 x = c.r8, w = c.r9;
  c.mov(x, c.ptr[c.rdi + kArgsTable]);
  c.movsxd(x, c.dword[x]);
  c.add(x, c.ptr[c.rdi + kArgsX]);
  start_accumulators(c, t, !d.starts_at_zero, w);
  c.mov(w, c.ptr[c.rdi + kArgsWeights]);
  const int column = s.vectors * 64, plane = static_cast<int>(d.input_columns(s.strip_columns)) * column;
  const int stride = static_cast<int>(d.stride[1]), dilation = static_cast<int>(d.dilation[1]),
            kw = static_cast<int>(d.kernel_columns);
  const int first_weight = t.accs() + s.columns, weight_regs = 32 - first_weight;
  int turn = 0;
  for (int q = 0; q < static_cast<int>(d.quads); ++q) {
    for (int k = 0; k < kw; ++k) {
      for (int v = 0; v < s.vectors; ++v) {
        for (int p = 0; p < s.columns; ++p) {
          c.vmovdqa64(Zmm(t.accs() + p), c.ptr[x + q * plane + (p * stride + k * dilation) * column + v * 64]);
        }
        for (int r = 0; r < s.rows; ++r) {
          if (!d.uses(r, q)) continue;
          const int row = ((q * kw + k) * s.vectors + v) * static_cast<int>(d.rows) + r;
          for (int half = 0; half < d.halves; ++half) {
            const auto from = c.ptr[w + (row * d.halves + half) * 64];
            if (s.columns == 1) {
              c.vpdpbusd(Zmm(t.acc(r, v)), Zmm(t.accs()), from);
              continue;
            }
            const Zmm weight(first_weight + turn++ % weight_regs);
            c.vmovdqu32(weight, from);
            for (int p = 0; p < s.columns; ++p) c.vpdpbusd(Zmm(t.acc(r * s.columns + p, v)), Zmm(t.accs() + p), weight);
          }
        }
      }
    }
  }
}

}  // namespace

std::size_t emit_depthwise_tile(Code& c, ConstantPool& pool, const DepthwiseGeometry& dw, const LoweredEpilogue& epilogue,
                                const DepthwiseTile& shape, bool vbmi) {
  Emitter emitter(c, pool, epilogue, vbmi);
  const Tile tile{.pixels = shape.columns * shape.rows, .vectors = shape.vectors, .tail = shape.tail};
  return emit_tile_loop(c, emitter, tile, epilogue.columns, [&] { emit_dots(c, dw, shape, tile); });
}

}  // namespace octavo::cpu::jit
