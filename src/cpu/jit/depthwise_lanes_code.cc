#include <algorithm>
#include <cstddef>

#include "cpu/jit/depthwise_lanes.h"
#include "cpu/jit/pipeline.h"

namespace octavo::cpu::jit {
namespace {

using Xbyak::Reg64;
using Xbyak::Zmm;

/// Sums of a tile. The registers behind them: weights of one kernel row, then inputs.
void emit_sums(Code& c, ConstantPool& pool, const DepthwiseLanesSetting& d, const DepthwiseLanesTile& t, const Tile& tile) {
  const Reg64 x = c.r8, w = c.r9;
  c.mov(x, c.ptr[c.rdi + kArgsTable]);
  c.movsxd(x, c.dword[x]);
  c.add(x, c.ptr[c.rdi + kArgsX]);
  start_accumulators(c, tile, true, w);
  c.mov(w, c.ptr[c.rdi + kArgsWeights]);
  const Conv2d& s = d.shape;
  const auto kw = static_cast<int>(s.kw);
  const auto taps = [&](int p) { return t.clipped.empty() ? TapRange{0, s.kw} : t.clipped[static_cast<std::size_t>(p)]; };
  const int weights = tile.accs(), inputs = weights + kw * t.vectors, turns = d.epilogue.registers() - inputs - (d.codes ? 1 : 0);
  const auto reg = [&](int i) { return vector_register(tile.lanes, i); };
  const int vector_bytes = d.epilogue.vector_bytes(), input_bytes = tile.lanes * static_cast<int>(d.element());
  const auto load = [&](const Xbyak::Xmm& input, const Xbyak::Address& at, bool tail) {
    if (d.codes) {
      tail ? load_codes_tail(c, input.getIdx(), at, t.tail) : c.vpmovzxbd(input, at);
      if (d.zero != 0) c.vpsubd(input, input, pool.each_lane(d.zero));
    } else if (d.bf16) {
      const Zmm wide(input.getIdx());
      tail ? c.vpmovzxwd(wide | c.k1 | Xbyak::util::T_z, at) : c.vpmovzxwd(wide, at);
      c.vpslld(wide, wide, 16);
    } else if (tail && tile.lanes == 8) {
      c.vmovups(input, pool.block(first_dwords(t.tail)));
      c.vmaskmovps(input, input, at);
    } else if (tail) {
      c.vmovups(Zmm(input.getIdx()) | c.k1 | Xbyak::util::T_z, at);
    } else {
      c.vmovups(input, at);
    }
  };
  int turn = 0;
  for (std::int64_t ky = t.rows.begin; ky < t.rows.end; ++ky) {
    for (int i = 0; i < kw * t.vectors; ++i)
      c.vmovups(reg(weights + i), c.ptr[w + (static_cast<int>(ky) * kw * t.vectors + i) * vector_bytes]);
    for (std::int64_t column = 0; column <= (t.columns - 1) * s.stride[1] + (s.kw - 1) * s.dilation[1]; ++column) {
      for (int v = 0; v < t.vectors; ++v) {
        bool loaded = false;
        for (int p = 0; p < t.columns; ++p) {
          const std::int64_t from = column - p * s.stride[1], k = from / s.dilation[1];
          if (from < 0 || from % s.dilation[1] != 0 || k < taps(p).begin || k >= taps(p).end) continue;
          const Xbyak::Xmm input = reg(inputs + turn % turns);
          if (!loaded) {
            const auto at =
                c.ptr[x + static_cast<int>(ky * s.dilation[0] * d.row_bytes + column * d.pixel_bytes) + v * input_bytes];
            load(input, at, v == t.vectors - 1 && t.tail != tile.lanes);
            loaded = true;
          }
          const Xbyak::Xmm acc = reg(tile.acc(p, v)), weight = reg(weights + static_cast<int>(k) * t.vectors + v);
          if (d.codes) {
            c.vpmaddwd(reg(d.epilogue.registers() - 1), input, weight);
            c.vpaddd(acc, acc, reg(d.epilogue.registers() - 1));
          } else {
            c.vfmadd231ps(acc, input, weight);
          }
        }
        turn += loaded ? 1 : 0;
      }
    }
  }
}

}  // namespace

std::size_t emit_depthwise_lanes_tile(Code& c, ConstantPool& pool, const DepthwiseLanesSetting& d, const DepthwiseLanesTile& t,
                                      bool vbmi) {
  Emitter emitter(c, pool, d.epilogue, vbmi);
  const Tile tile{.pixels = t.columns, .vectors = t.vectors, .lanes = d.epilogue.lanes, .tail = t.tail};
  return emit_tile_loop(c, emitter, tile, d.epilogue.columns, [&] { emit_sums(c, pool, d, t, tile); });
}

}  // namespace octavo::cpu::jit
