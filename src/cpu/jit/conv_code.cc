#include "cpu/jit/conv_code.h"

#include <algorithm>
#include <array>

#include "cpu/jit/pipeline.h"

namespace octavo::cpu::jit {
namespace {

using Xbyak::Reg64;
using Xbyak::Xmm;
using Xbyak::Zmm;

constexpr std::int32_t kLastSegment = 0x7fffffff;

/// Dots in straight-line code: enough to hide the loop, few enough that decoded code fits the micro-op cache beside the epilogue.
constexpr int kUnrolledDots = 192, kStraightDots = 768;
/// Groups of four of a tile of 12 accumulators under an epilogue of some 25 operations.
constexpr std::int64_t kAmongQuads = 24;

/// Pixel addresses of dots among an epilogue, which has rbx, rbp and, up to 6 pixels, rcx and rdx.
Reg64 pixel_among(int p) {
  return p < 6 ? Reg64(Xbyak::Operand::R8 + p) : p == 6 ? Xbyak::util::rdx : Xbyak::util::rcx;
}

/// acc += input * weight, lane by lane; `product`, of pairs alone, is overwritten.
void multiply_add(Code& c, Dots dots, const Xmm& acc, const Xmm& input, const Xbyak::Operand& weight, const Xmm& product) {
  if (dots == Dots::floats) {
    c.vfmadd231ps(acc, input, weight);
  } else if (dots == Dots::pairs) {
    c.vpmaddwd(product, input, weight);
    c.vpaddd(acc, acc, product);
  } else if (dots == Dots::bf16) {
    c.vdpbf16ps(acc, input, weight);
  } else {
    c.vpdpbusd(acc, input, weight);
  }
}

/// How a reduction that is too long for straight-line code loops.
struct Loops {
  int unroll = 1;                          ///< quads of a round
  std::int64_t rounds = 0, all_bytes = 0;  ///< of a tile: rounds, and weights
  std::int64_t most_lines = 0;             ///< that a round fetches; 0: nothing is

  /// Of the segments from the first one on.
  static Loops of(const CodePhase& ph, const Tile& t, std::size_t first_segment) {
    Loops l;
    const auto segments = static_cast<std::int64_t>(ph.segments.size() - first_segment);
    const int most = static_cast<int>(std::clamp<std::int64_t>(kUnrolledDots / t.accs(), 1, ph.quads));
    l.unroll = most;
    while (l.unroll > most / 2 && ph.quads % l.unroll != 0) --l.unroll;
    if (ph.quads % l.unroll != 0) l.unroll = most;
    l.rounds = ph.quads / l.unroll * segments;
    l.all_bytes = segments * ph.quads * t.vectors * t.lanes * 4;
    if (ph.fetches && t.pixels < 12) l.most_lines = static_cast<std::int64_t>(l.unroll) * t.vectors;
    return l;
  }
  static bool straight(const CodePhase& ph, const Tile& t, std::size_t first_segment) {
    return static_cast<std::int64_t>(ph.segments.size() - first_segment) * ph.quads * t.accs() <= kStraightDots;
  }
  /// Lines of the next block's weights that a round fetches, if so many tiles run.
  [[nodiscard]] std::int64_t lines(std::int64_t tiles) const {
    const std::int64_t wanted = ceil_div(all_bytes, 64 * std::max<std::int64_t>(1, tiles * rounds));
    return tiles > 1 && wanted <= most_lines ? wanted : 0;
  }
  /// The fewest tiles with as many lines.
  [[nodiscard]] std::int64_t fewest(std::int64_t tiles) const {
    const std::int64_t fetched = lines(tiles);
    return fetched == 0 ? 1 : std::max<std::int64_t>(2, ceil_div(all_bytes, 64 * rounds * fetched));
  }
};

class ConvTile {
 public:
  /// `tiles`: of a block over a row tile. In that time the next block's weights are fetched into L2.
  /// `after_units`: registers are those of ConvUnits, which has done the first segments.
  ConvTile(Code& c, Dots dots, const CodePhase& phase, const Tile& tile, std::int64_t tiles, bool after_units = false)
      : c_(c), dots_(dots), ph_(phase), t_(tile), tiles_(tiles), after_units_(after_units) {}

  void reduce(std::size_t first_segment = 0) {
    const auto segments = static_cast<std::int64_t>(ph_.segments.size() - first_segment);
    if (segments * ph_.quads == 0) return;
    if (!after_units_) c_.mov(w_, c_.ptr[c_.rdi + kArgsWeights]);
    if (first_segment > 0) c_.add(w_, static_cast<int>(static_cast<std::int64_t>(first_segment) * ph_.quads * quad_bytes_));
    if (Loops::straight(ph_, t_, first_segment)) {
      std::int64_t done = 0;
      for (auto s = first_segment; s < ph_.segments.size(); ++s) {
        for (std::int64_t q = 0; q < ph_.quads; ++q, ++done)
          quad(static_cast<int>(ph_.segments[s] + 4 * q), static_cast<int>(done), false);
      }
      return;
    }
    const Loops l = Loops::of(ph_, t_, first_segment);
    const int unroll = l.unroll, rest = static_cast<int>(ph_.quads % unroll), quad_bytes = quad_bytes_;
    const auto loops = ph_.quads / unroll;
    const bool walks = segments > 1;
    const std::int64_t lines = l.lines(tiles_);
    const bool fetch = lines > 0;
    Xbyak::Label next_segment, inner;
    if (fetch) c_.mov(ahead_, c_.ptr[c_.rdi + kArgsAhead]);
    if (loops > 1) {
      c_.lea(k_, c_.ptr[w_ + static_cast<int>(loops * unroll * quad_bytes)]);
      c_.mov(c_.ptr[c_.rdi + kArgsWalkEnd], k_);
    }
    if (walks) {
      c_.lea(k_, c_.ptr[c_.rip + segments_ + static_cast<int>(first_segment) * 8]);
      c_.mov(c_.ptr[c_.rdi + kArgsWalk], k_);
    }
    c_.mov(k_, ph_.segments[first_segment]);
    if (walks) c_.L(next_segment);
    if (loops > 1) c_.align(32);
    c_.L(inner);
    for (int u = 0, line = 0; u < unroll; ++u) {
      quad(4 * u, u, true);
      for (; fetch && line * unroll < lines * (u + 1); ++line) c_.prefetcht1(c_.ptr[ahead_ + line * 64]);
    }
    if (fetch) c_.add(ahead_, static_cast<int>(lines) * 64);
    c_.add(k_, 4 * unroll);
    c_.add(w_, unroll * quad_bytes);
    if (loops > 1) {
      c_.cmp(w_, c_.ptr[c_.rdi + kArgsWalkEnd]);
      c_.jb(inner, Xbyak::CodeGenerator::T_NEAR);
    }
    for (int u = 0; u < rest; ++u) quad(4 * u, u, true);
    if (!walks) {
      if (fetch) c_.mov(c_.ptr[c_.rdi + kArgsAhead], ahead_);
      return;
    }
    if (rest > 0) c_.add(w_, rest * quad_bytes);
    if (loops > 1) c_.add(c_.qword[c_.rdi + kArgsWalkEnd], static_cast<int>(ph_.quads * quad_bytes));
    c_.mov(k_, c_.ptr[c_.rdi + kArgsWalk]);
    c_.add(k_, 8);
    c_.mov(c_.ptr[c_.rdi + kArgsWalk], k_);
    c_.mov(k_, c_.ptr[k_]);
    c_.cmp(k_, kLastSegment);
    c_.jne(next_segment, Xbyak::CodeGenerator::T_NEAR);
    if (fetch) c_.mov(c_.ptr[c_.rdi + kArgsAhead], ahead_);
  }

  void pointers(int columns) {
    c_.mov(k_, c_.ptr[c_.rdi + kArgsTable]);
    c_.mov(w_, c_.ptr[c_.rdi + kArgsX]);
    for (int p = 0; p < t_.pixels; ++p) {
      c_.movsxd(x(p), c_.dword[k_ + p * columns * 4]);
      c_.add(x(p), w_);
    }
  }

  void start(bool has_init) { start_accumulators(c_, t_, has_init, k_); }

  /// The segment offsets after the first, read by the walk.
  void data() {
    c_.align(8);
    c_.L(segments_);
    for (auto s : ph_.segments) c_.dq(static_cast<std::uint64_t>(s));
    c_.dq(static_cast<std::uint64_t>(kLastSegment));
  }

 private:
  [[nodiscard]] Reg64 x(int p) const {
    if (after_units_) return pixel_among(p);
    const std::array<Reg64, 12> regs{c_.rax, c_.rbx, c_.rcx, c_.rdx, c_.rsi, c_.r8, c_.r9, c_.r10, c_.r11, c_.r12, c_.r13, c_.r14};
    return regs[static_cast<std::size_t>(p)];
  }

  /// Four bytes of every pixel against four weights of every channel. `index` counts quads from w_.
  void quad(int displacement, int index, bool indexed) {
    // Of pairs one more register holds a product; where weights leave none for it, they are read from memory by every pixel.
    const int all = (t_.lanes == 16 ? 32 : 16) - (dots_ == Dots::pairs ? 1 : 0);
    const bool in_registers = all - t_.vectors > t_.accs();
    const int first_weight = in_registers ? all - t_.vectors : all, temps = first_weight - t_.accs();
    const auto stored = [&](int v) { return c_.ptr[w_ + index * quad_bytes_ + v * t_.lanes * 4]; };
    for (int v = 0; in_registers && v < t_.vectors; ++v) c_.vmovups(reg(first_weight + v), stored(v));
    for (int p = 0; p < t_.pixels; ++p) {
      const Xmm input = reg(t_.accs() + next_temp_++ % temps);
      if (indexed) {
        c_.vpbroadcastd(input, c_.ptr[x(p) + k_ + displacement]);
      } else {
        c_.vpbroadcastd(input, c_.ptr[x(p) + displacement]);
      }
      for (int v = 0; v < t_.vectors; ++v) {
        if (in_registers) {
          multiply_add(c_, dots_, reg(t_.acc(p, v)), input, reg(first_weight + v), reg(all));
        } else {
          multiply_add(c_, dots_, reg(t_.acc(p, v)), input, stored(v), reg(all));
        }
      }
    }
  }
  [[nodiscard]] Xmm reg(int i) const { return vector_register(t_.lanes, i); }

  Code& c_;
  Dots dots_;
  const CodePhase& ph_;
  Tile t_;
  int quad_bytes_ = t_.vectors * t_.lanes * 4;
  std::int64_t tiles_;
  bool after_units_;
  const Reg64 w_ = after_units_ ? Xbyak::util::r14 : Xbyak::util::rbp, k_ = Xbyak::util::r15;
  const Reg64 ahead_ = after_units_ ? Xbyak::util::rbp : Xbyak::util::r14;  // r14: free below 12 pixels
  int next_temp_ = 0;
  Xbyak::Label segments_;
};

/// The reduction of a pipelined tile as short runs of instructions. The side (weights or pixels) that needs fewer registers stays
/// in them for a quad, the other is loaded again and again.
class ConvUnits {
 public:
  /// `temps`: zmm from which on registers are free for the dots. The reduction's first `segments` only.
  ConvUnits(Code& c, const CodeSetting& plan, const CodePhase& phase, const Tile& tile, int temps, std::size_t segments)
      : c_(c),
        plan_(plan),
        ph_(phase),
        segments_(segments),
        temps_(temps),
        weights_stay_(tile.vectors <= tile.pixels),
        reserved_(std::min(tile.vectors, tile.pixels) + 1) {}

  /// zmm needed besides the accumulators.
  [[nodiscard]] int reserved() const { return reserved_; }

  std::vector<Unit> operator()(const Tile& t, int ahead) const {
    std::vector<Unit> list;
    list.emplace_back([=, this] { start(t, ahead); });
    const int other = temps_ + reserved_ - 1;
    int index = 0;
    for (std::size_t s = 0; s < segments_; ++s) {
      const std::int64_t segment = ph_.segments[s];
      for (std::int64_t q = 0; q < ph_.quads; ++q, ++index) {
        const int at = static_cast<int>(segment + 4 * q);
        const auto weight = [=, this](int v) { return c_.ptr[w_ + (index * t.vectors + v) * 64]; };
        const auto input = [=, this](int p) { return c_.ptr[x(p) + at]; };
        for (int p = 0; weights_stay_ && p < t.pixels; ++p) {
          list.emplace_back([=, this] {
            for (int v = 0; p == 0 && v < t.vectors; ++v) c_.vmovdqu32(Zmm(temps_ + v), weight(v));
            c_.vpbroadcastd(Zmm(other), input(p));
            for (int v = 0; v < t.vectors; ++v) multiply_add(c_, plan_.dots, Zmm(t.acc(p, v)), Zmm(other), Zmm(temps_ + v), Xmm());
          });
        }
        for (int v = 0; !weights_stay_ && v < t.vectors; ++v) {
          list.emplace_back([=, this] {
            for (int p = 0; v == 0 && p < t.pixels; ++p) c_.vpbroadcastd(Zmm(temps_ + p), input(p));
            c_.vmovdqu32(Zmm(other), weight(v));
            for (int p = 0; p < t.pixels; ++p) multiply_add(c_, plan_.dots, Zmm(t.acc(p, v)), Zmm(temps_ + p), Zmm(other), Xmm());
          });
        }
      }
    }
    return list;
  }

  /// Addresses and first values.
  void start(const Tile& t, int ahead) const {
    for (int p = 0; p < t.pixels; ++p) {
      c_.movsxd(x(p), c_.dword[c_.rsi + ahead + p * plan_.columns * 4]);
      c_.add(x(p), c_.ptr[c_.rdi + kArgsX]);
    }
    start_accumulators(c_, t, !plan_.starts_at_zero, w_);
    c_.mov(w_, c_.ptr[c_.rdi + kArgsWeights]);
  }

 private:
  static Reg64 x(int p) { return pixel_among(p); }

  Code& c_;
  const CodeSetting& plan_;
  const CodePhase& ph_;
  std::size_t segments_;
  int temps_;
  bool weights_stay_;
  int reserved_;
  const Reg64 w_ = Xbyak::util::r14;
};

/// Segments whose dots run among a long epilogue's instructions: enough for most of them, few enough for straight code. 0: none.
std::size_t segments_among(const CodePhase& phase, const Tile& tile) {
  std::size_t n = 0;
  std::int64_t quads = 0;
  while (n < phase.segments.size() && quads < kAmongQuads) ++n, quads += phase.quads;
  return quads * tile.accs() > kStraightDots ? 0 : n;
}

/// A long epilogue behind the next tile's dots: the accumulators go to the stack, and their registers to the next tile.
void emit_behind(Code& c, Emitter& emitter, const CodeSetting& plan, const CodePhase& phase, const Tile& tile, std::int64_t tiles,
                 std::size_t segments) {
  const int columns = plan.columns, advance = tile.pixels * columns * 4, stack = emitter.stack_bytes();
  Tile stored = tile;
  stored.in_memory = true;
  if (tile.pixels > 6) emitter.few_pointers(2);
  ConvUnits units(c, plan, phase, tile, tile.accs(), segments);
  ConvTile rest(c, plan.dots, phase, tile, tiles, true);
  const int free = tile.accs() + units.reserved();
  Xbyak::Label loop, last;
  enter(c, stack + tile.accs() * 64);
  emitter.masks(tile);
  c.mov(c.rsi, c.ptr[c.rdi + kArgsTable]);
  units.start(tile, 0);  // the first tile's dots by loops: code that runs once is fetched from memory for it
  rest.reduce(0);
  c.align(16);
  c.L(loop);
  for (int i = 0; i < tile.accs(); ++i) c.vmovdqu32(c.ptr[c.rsp + stack + i * 64], Zmm(i));
  c.dec(c.qword[c.rdi + kArgsTiles]);
  c.jz(last, Xbyak::CodeGenerator::T_NEAR);
  const auto dots = units(tile, advance);
  c.lea(c.r15, c.ptr[c.rsp + stack]);
  emitter.begin(stored, free, true);
  std::size_t done = 0, row = 0;
  const auto rows = static_cast<std::size_t>(emitter.rows());
  emitter.between([&] {
    for (++row; done < std::min(dots.size(), dots.size() * row / rows); ++done) dots[done]();
  });
  for (int i = 0; i < emitter.steps(); ++i) emitter.step(i);
  for (; done < dots.size(); ++done) dots[done]();
  emitter.between({});
  c.add(c.rsi, advance);
  rest.reduce(segments);
  c.jmp(loop, Xbyak::CodeGenerator::T_NEAR);
  c.L(last);
  c.lea(c.r15, c.ptr[c.rsp + stack]);
  emitter.begin(stored, free, true);
  for (int i = 0; i < emitter.steps(); ++i) emitter.step(i);
  c.add(c.rsi, advance);
  c.mov(c.ptr[c.rdi + kArgsTable], c.rsi);
  leave(c, stack + tile.accs() * 64);
  emitter.finish();
  rest.data();
}

}  // namespace

std::int64_t fewest_conv_tiles(const CodePhase& phase, const Tile& tile, std::int64_t tiles) {
  // A reduction begins at the first segment, or behind those among an epilogue. Too few tiles fetch nothing, so both have to agree.
  std::int64_t fewest = 1;
  for (const std::size_t first : {std::size_t{0}, segments_among(phase, tile)}) {
    if (first < phase.segments.size() && phase.quads > 0 && !Loops::straight(phase, tile, first))
      fewest = std::max(fewest, Loops::of(phase, tile, first).fewest(tiles));
  }
  return fewest;
}

std::size_t emit_conv_tile(Code& c, ConstantPool& pool, const CodeSetting& plan, const LoweredEpilogue& epilogue,
                           const CodePhase& phase, const Tile& tile, std::int64_t tiles) {
  Emitter emitter(c, pool, epilogue, plan.vbmi);
  ConvTile t(c, plan.dots, phase, tile, tiles);
  c.align(64);
  const std::size_t start = c.getSize();
  // With other tensors to read or write, or few pixels for code that is fetched from memory, it costs more than it saves.
  const bool curve = epilogue.window > 0, wide = tile.lanes == 16;
  const bool fits = tile.accs() > 9 && tile.accs() <= 12 && tile.pixels <= 6;
  const bool fits_curve = curve && tile.vectors == 1 && tile.pixels > 6 && tile.pixels <= kPixelsOfOneVector;
  if (wide && (emitter.is_long() || curve) && (fits || fits_curve) && epilogue.columns <= 2 && phase.behind) {
    if (const auto segments = segments_among(phase, tile); segments > 0) {
      emit_behind(c, emitter, plan, phase, tile, tiles, segments);
      return start;
    }
  }
  const bool stores = curve || emitter.wants_registers();
  const int stack = emitter.stack_bytes(), all_stack = stack + (stores ? tile.accs() * 64 : 0);
  enter(c, all_stack);
  emitter.masks(tile);
  if (wide && !curve && tile.accs() <= 12 && tile.pixels <= 6 && phase.all_quads() <= kPipelinedQuads && emitter.width() <= 3) {
    const ConvUnits units(c, plan, phase, tile, 2 * tile.accs(), phase.segments.size());
    emit_pipeline(c, emitter, tile, plan.columns, units.reserved(), units);
    leave(c, emitter.stack_bytes());
    return start;
  }
  Xbyak::Label next;
  c.align(16);
  c.L(next);
  t.pointers(plan.columns);
  t.start(!plan.starts_at_zero);
  t.reduce();
  if (stores) {
    emit_stored(c, emitter, tile);
  } else {
    emitter.emit(tile);
  }
  c.add(c.qword[c.rdi + kArgsTable], tile.pixels * plan.columns * 4);
  c.dec(c.qword[c.rdi + kArgsTiles]);
  c.jnz(next, Xbyak::CodeGenerator::T_NEAR);
  leave(c, all_stack);
  emitter.finish();
  t.data();
  return start;
}

}  // namespace octavo::cpu::jit
