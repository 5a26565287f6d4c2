#include "cpu/jit/amx_code.h"

#include <algorithm>
#include <list>
#include <vector>

#include "cpu/jit/pipeline.h"

namespace octavo::cpu::jit {
namespace {

using Xbyak::Label;
using Xbyak::Reg64;

/// Steps of the reduction in straight-line code, between the instructions of the last tile's epilogue; what comes before runs in a
/// loop, where the epilogue weighs little.
constexpr std::int64_t kStraightSteps = 64;
/// Lines that are fetched a step at most: a step takes some 70 clocks, a line from the last level cache 7.
constexpr std::int64_t kLinesAhead = 16;

/// Part of an epilogue, in percent, that a pass is spread over.
constexpr std::size_t kFront = 75;

/// Lines of the next block's weights that a step fetches, if so many tiles run.
std::int64_t lines_a_step(const CodePhase& ph, const Tile& t, std::int64_t count) {
  const std::int64_t steps = static_cast<std::int64_t>(ph.segments.size()) * ph.steps;
  const std::int64_t lines = steps * t.vectors * ph.depth / 4, rounds = count * steps * ((t.vectors + 1) / 2);
  return ph.fetches_on_tiles ? std::min(kLinesAhead, ceil_div(lines, std::max<std::int64_t>(1, rounds))) : 0;
}

class AmxTile {
 public:
  /// `count`: tiles of a block over a row tile. In that time the next block's weights are fetched into L2.
  AmxTile(Code& c, const CodeSetting& plan, const CodePhase& phase, const Tile& tile, const Tiles& tiles, std::int64_t count)
      : c_(c), plan_(plan), ph_(phase), t_(tile), tiles_(tiles) {
    for (auto segment : ph_.segments) {
      for (std::int64_t k = 0; k < ph_.steps; ++k) offsets_.push_back(static_cast<std::int32_t>(segment + k * ph_.depth));
    }
    lines_ = lines_a_step(ph_, t_, count);
  }

  /// Of the sums; `before` them lie those of the pixels that are computed again.
  [[nodiscard]] int buffer_bytes() const { return t_.place(t_.pixels, 0); }
  [[nodiscard]] int before() const { return t_.place(t_.skip, 0); }

  void constants() {
    c_.mov(w_, c_.ptr[c_.rdi + kArgsWeights]);
    c_.mov(a_stride_, ph_.pixel_bytes);
    c_.mov(b_stride_, 64);
  }

  /// Some vectors of the next tile, all its pixels: products, then the sums' way to the next buffer, which may run between
  /// instructions of an epilogue.
  struct Pass {
    std::vector<Unit> products, stores;
  };
  /// `ahead`: bytes from rsi to the tile's table entries, which are read at once.
  std::vector<Pass> sums(int ahead) {
    pointers(ahead);
    const auto steps = static_cast<std::int64_t>(offsets_.size());
    const int passes = (t_.vectors + 1) / 2;
    const std::int64_t straight = std::min(steps, kStraightSteps / passes);
    std::vector<Pass> list(static_cast<std::size_t>(passes));
    for (int pass = 0; pass < passes; ++pass) {
      auto& [products, stores] = list[static_cast<std::size_t>(pass)];
      const int first = 2 * pass, count = std::min(2, t_.vectors - first);
      for (int b = 0; b < blocks(); ++b) {
        for (int v = 0; v < count; ++v) products.emplace_back([=, this] { start(b, first + v); });
      }
      if (straight < steps) {
        products = {[=, this, begin = products] {
          for (const auto& u : begin) u();
          loop(first, count, steps - straight);
        }};
      }
      for (std::int64_t i = steps - straight; i < steps; ++i) step(products, first, count, i);
      for (int b = 0; b < blocks(); ++b) {
        for (int v = 0; v < count; ++v) stores.emplace_back([=, this] { store(b, first + v); });
      }
    }
    return list;
  }
  /// Products begin with a loop, which changes the registers of addresses.
  [[nodiscard]] bool loops() const { return static_cast<std::int64_t>(offsets_.size()) > kStraightSteps / ((t_.vectors + 1) / 2); }

  static void run(const std::vector<Unit>& units) {
    for (const auto& u : units) u();
  }

  /// The offsets that loops walk.
  void data() {
    for (auto& walk : walks_) {
      c_.align(4);
      c_.L(walk.begin);
      for (std::int64_t i = 0; i < walk.until; ++i) c_.dd(static_cast<std::uint32_t>(offsets_[static_cast<std::size_t>(i)]));
      c_.L(walk.end);
    }
  }

 private:
  [[nodiscard]] int blocks() const { return static_cast<int>(ceil_div(t_.pixels, t_.rows)); }
  [[nodiscard]] Reg64 a(int block) const { return block == 0 ? c_.r8 : c_.r9; }
  static int sum(int block, int vector) { return 2 * block + vector % 2; }
  [[nodiscard]] std::int64_t weights(std::int64_t step, int vector) const { return (step * t_.vectors + vector) * ph_.depth * 16; }

  void pointers(int ahead) {
    for (int b = 0; b < blocks(); ++b) {
      c_.movsxd(a(b), c_.dword[c_.rsi + ahead + b * t_.rows * plan_.columns * 4]);
      c_.add(a(b), c_.ptr[c_.rdi + kArgsX]);
      if (b + 1 == blocks() && t_.skip > 0) c_.sub(a(b), static_cast<int>(t_.skip * ph_.pixel_bytes));
    }
  }

  void start(int block, int v) const {
    if (plan_.starts_at_zero) return tiles_.zero(c_, sum(block, v));
    c_.mov(scratch_, c_.ptr[c_.rdi + kArgsInit]);
    c_.xor_(c_.eax, c_.eax);  // every row is the same
    tiles_.load(c_, sum(block, v), scratch_, c_.rax, v * 64);
  }

  void store(int block, int v) const {
    if (t_.vectors > 1) c_.mov(scratch_, t_.vectors * 64);
    tiles_.store(c_, sum(block, v), next_, t_.vectors > 1 ? scratch_ : b_stride_,
                 t_.place(block * t_.rows - (block + 1 == blocks() ? t_.skip : 0), v));
  }

  void step(std::vector<Unit>& units, int first, int count, std::int64_t i) {
    const int offset = offsets_[static_cast<std::size_t>(i)];
    for (int v = 0; v < count; ++v) {  // products of the same weights follow each other: 5 to 15 % faster
      for (int b = 0; b < blocks(); ++b) {
        units.emplace_back([=, this] {
          if (v == 0) tiles_.load(c_, 4 + b, a(b), a_stride_, offset);
          if (b == 0) tiles_.load(c_, 6 + v, w_, b_stride_, static_cast<int>(weights(i, first + v)));
          dot(b, first + v, v);
          if (v == 0 && b == 0) fetch(scratch_);
        });
      }
    }
  }

  /// Sums of a block and vector += pixels of the block * weights number `w` of a pass.
  void dot(int block, int vector, int w) const {
    if (of_bf16(plan_.dots)) return tiles_.dot_bf16(c_, sum(block, vector), 4 + block, 6 + w);
    tiles_.dot(c_, sum(block, vector), 4 + block, 6 + w);
  }

  /// Some more lines of what comes next.
  void fetch(const Reg64& pointer) {
    if (lines_ == 0) return;
    c_.mov(pointer, c_.ptr[c_.rdi + kArgsAhead]);
    for (std::int64_t i = 0; i < lines_; ++i) c_.prefetcht1(c_.ptr[pointer + static_cast<int>(i) * 64]);
    c_.add(c_.qword[c_.rdi + kArgsAhead], static_cast<int>(lines_) * 64);
  }

  void loop(int first, int count, std::int64_t until) {
    auto& walk = walks_.emplace_back();
    walk.until = until;
    Label again;
    c_.lea(c_.rax, c_.ptr[c_.rip + walk.begin]);
    c_.lea(scratch_, c_.ptr[c_.rip + walk.end]);
    c_.lea(c_.rbx, c_.ptr[w_ + static_cast<int>(weights(0, first))]);
    c_.align(16);
    c_.L(again);
    c_.movsxd(c_.rcx, c_.dword[c_.rax]);
    c_.add(c_.rax, 4);
    for (int b = 0; b < blocks(); ++b) c_.lea(b == 0 ? c_.rdx : c_.rbp, c_.ptr[a(b) + c_.rcx]);
    for (int v = 0; v < count; ++v) {
      for (int b = 0; b < blocks(); ++b) {
        if (v == 0) tiles_.load(c_, 4 + b, b == 0 ? c_.rdx : c_.rbp, a_stride_, 0);
        if (b == 0) tiles_.load(c_, 6 + v, c_.rbx, b_stride_, static_cast<int>(weights(0, v)));
        dot(b, first + v, v);
      }
    }
    fetch(c_.rcx);
    c_.add(c_.rbx, static_cast<int>(weights(1, 0)));
    c_.cmp(c_.rax, scratch_);
    c_.jb(again, Xbyak::CodeGenerator::T_NEAR);
  }

  struct Walk {
    Label begin, end;
    std::int64_t until = 0;
  };

  Code& c_;
  const CodeSetting& plan_;
  const CodePhase& ph_;
  Tile t_;
  const Tiles& tiles_;
  std::int64_t lines_ = 0;             ///< fetched a step
  std::vector<std::int32_t> offsets_;  ///< of the steps, from a pixel's address
  std::list<Walk> walks_;
  const Reg64 w_ = Xbyak::util::r10, a_stride_ = Xbyak::util::r11, b_stride_ = Xbyak::util::r12, scratch_ = Xbyak::util::r13,
              next_ = Xbyak::util::r14;
};

/// Instructions of an epilogue in straight-line code, at most.
constexpr std::int64_t kStraightInstructions = 2000;
/// Vectors of a round of a longer one.
constexpr int kVectorsOfRound = 24;

bool is_short(const LoweredEpilogue& program, const Tile& tile) {
  return (program.operations() + 2) * tile.accs() <= kStraightInstructions;
}

/// The epilogue of the tile in the buffer at r15 and the table entries at rsi, in loops over some of its pixels, one loop for each
/// pass of the next tile; leaves rsi behind the tile's entries. Without a next tile (the flag at rdi + kArgsTiles is 0) the passes are
/// left out. Stores that wait for products would hold up the loop's loads behind them: they come when the products are done.
void looped_epilogue(Code& c, Emitter& emitter, const Tile& tile, int columns, const std::vector<AmxTile::Pass>& passes,
                     bool may_end) {
  Tile some = tile;
  const int most = std::min(tile.pixels, kVectorsOfRound / tile.vectors);
  some.pixels = most;
  for (int p = most; p * 2 > most; --p) {
    if (tile.pixels % p != 0) continue;
    some.pixels = p;
    break;
  }
  const auto round = [&](const Tile& t) {
    emitter.begin(t, 0, true);
    for (int i = 0; i < emitter.steps(); ++i) emitter.step(i);
    c.add(c.rsi, t.pixels * columns * 4);
    c.add(c.r15, t.place(t.pixels, 0));
  };
  const auto some_more = [&](const std::vector<Unit>& units) {
    Label none;
    if (may_end) {
      c.cmp(c.qword[c.rdi + kArgsTiles], 0);
      c.je(none, Xbyak::CodeGenerator::T_NEAR);
    }
    AmxTile::run(units);
    c.L(none);
  };
  const std::size_t parts = std::max<std::size_t>(1, passes.size());
  const int rounds = tile.pixels / some.pixels, rest = tile.pixels % some.pixels;
  for (std::size_t i = 0; i < parts; ++i) {
    if (!passes.empty()) some_more(passes[i].products);
    const int count =
        rounds * static_cast<int>(i + 1) / static_cast<int>(parts) - rounds * static_cast<int>(i) / static_cast<int>(parts);
    if (count > 0) {
      Label again;
      c.mov(c.r13, count);
      c.align(32);
      c.L(again);
      round(some);
      c.dec(c.r13);
      if (count > 1) c.jnz(again, Xbyak::CodeGenerator::T_NEAR);
    }
    if (i + 1 == parts && rest > 0) {
      some.pixels = rest;
      round(some);
    }
    if (!passes.empty()) some_more(passes[i].stores);
  }
  c.sub(c.r15, tile.place(tile.pixels, 0));
}

/// Operations from which on an epilogue takes longer than the products of few channels.
constexpr std::int64_t kLongEpilogue = 7;

/// The same in straight-line code, with the next tile's passes in between; rsi stays. Where the epilogue is long a pass is stored
/// right behind its products: that is still early for the loads of the instructions that follow (docs/lab/kernels.md). Else behind
/// the epilogue's part: the products are what is waited for.
void epilogue(Emitter& emitter, const Tile& tile, const std::vector<AmxTile::Pass>& passes, bool loops, bool among) {
  emitter.begin(tile, 0, true);
  const auto steps = static_cast<std::size_t>(emitter.steps()), parts = passes.size();
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t first = steps * part / parts, until = steps * (part + 1) / parts;
    std::vector<Unit> units = passes[part].products;
    if (among) units.insert(units.end(), passes[part].stores.begin(), passes[part].stores.end());
    std::size_t done = 0;
    if (loops) units[done++](), emitter.forget_pointers();
    const std::size_t straight = units.size() - done, begin = done;
    const std::size_t room = std::max<std::size_t>(1, (until - first) * kFront / 100);
    for (std::size_t i = first; i < until; ++i) {
      const std::size_t by = begin + std::min(straight, straight * (i + 1 - first) / room);
      for (; done < by; ++done) units[done]();
      emitter.step(static_cast<int>(i));
    }
    for (; done < units.size(); ++done) units[done]();
    if (!among) AmxTile::run(passes[part].stores);
  }
}

}  // namespace

std::int64_t fewest_amx_tiles(const CodePhase& phase, const Tile& tile, std::int64_t count) {
  const std::int64_t lines = lines_a_step(phase, tile, count);
  std::int64_t few = 1, many = std::max<std::int64_t>(1, count);  // more tiles never mean more lines
  while (few < many) {
    const std::int64_t middle = (few + many) / 2;
    if (lines_a_step(phase, tile, middle) == lines)
      many = middle;
    else
      few = middle + 1;
  }
  return few;
}

std::size_t emit_amx_tile(Code& c, ConstantPool& pool, const CodeSetting& plan, const LoweredEpilogue& program,
                          const CodePhase& phase, const Tile& tile, const Tiles& tiles, std::int64_t count) {
  Emitter emitter(c, pool, program, plan.vbmi);
  AmxTile t(c, plan, phase, tile, tiles, count);
  c.align(64);
  const std::size_t start = c.getSize();
  // Stack, 64-byte aligned: values that the epilogue spills, two buffers of sums, the caller's rsp.
  const int first = emitter.stack_bytes() + t.before(), second = first + t.buffer_bytes() + t.before(),
            old = second + t.buffer_bytes();
  for (const auto& r : {c.rbx, c.rbp, c.r12, c.r13, c.r14, c.r15}) c.push(r);
  c.mov(c.rax, c.rsp);
  c.sub(c.rsp, old + 64);
  c.and_(c.rsp, -64);
  c.mov(c.ptr[c.rsp + old], c.rax);
  c.lea(c.r14, c.ptr[c.rsp + first]);
  c.lea(c.r15, c.ptr[c.rsp + second]);
  emitter.masks(tile);
  t.constants();
  c.mov(c.rsi, c.ptr[c.rdi + kArgsTable]);

  const int advance = tile.pixels * plan.columns * 4;
  Label next, last;
  for (const auto& pass : t.sums(0)) AmxTile::run(pass.products), AmxTile::run(pass.stores);
  c.align(16);
  c.L(next);
  c.xchg(c.r14, c.r15);
  c.dec(c.qword[c.rdi + kArgsTiles]);
  if (is_short(program, tile)) {
    c.jz(last, Xbyak::CodeGenerator::T_NEAR);
    epilogue(emitter, tile, t.sums(advance), t.loops(), program.operations() >= kLongEpilogue);
    c.add(c.rsi, advance);
    c.jmp(next, Xbyak::CodeGenerator::T_NEAR);
    c.L(last);
    looped_epilogue(c, emitter, tile, plan.columns, {}, false);  // less code than a second straight one
  } else {
    Label go;
    c.jz(go, Xbyak::CodeGenerator::T_NEAR);
    const auto passes = t.sums(advance);
    c.L(go);
    looped_epilogue(c, emitter, tile, plan.columns, passes, true);
    c.cmp(c.qword[c.rdi + kArgsTiles], 0);
    c.jne(next, Xbyak::CodeGenerator::T_NEAR);
  }
  c.mov(c.ptr[c.rdi + kArgsTable], c.rsi);
  c.mov(c.rsp, c.ptr[c.rsp + old]);
  for (const auto& r : {c.r15, c.r14, c.r13, c.r12, c.rbp, c.rbx}) c.pop(r);
  c.vzeroupper();
  c.ret();
  emitter.finish();
  t.data();
  return start;
}

}  // namespace octavo::cpu::jit
