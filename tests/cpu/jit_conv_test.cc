// Generated convolutions against brute force: shapes around the tile sizes, strides, dilations, groups, pads, zero points,
// epilogues. Every test runs on vpdpbusd, on pairs of 16 bits (AVX2), on emulated AMX tiles and, where the processor has them, on AMX tiles.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "cpu/amx_emulated.h"
#include "cpu/cap.h"
#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "program/math.h"
#include "support/facts.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;
using Ints = std::vector<std::int64_t>;

struct Conv {
  std::int64_t n = 1, c = 16, h = 5, w = 7, o = 16;
  Ints kernel{1, 1}, strides{1, 1}, dilations{1, 1}, pads{0, 0, 0, 0};
  std::int64_t groups = 1;
  int zero = 7, gap = 0;
  bool transposed = false;
  BufferKind kind = BufferKind::arena;
  int threads = 1;
};

std::string text(const Conv& k) {
  return fmt::format("{} n{} c{} {}x{} o{} k{}x{} s{}x{} d{}x{} p{},{},{},{} g{} zx{} gap{} threads{}",
                     k.transposed ? "convT" : "conv", k.n, k.c, k.h, k.w, k.o, k.kernel[0], k.kernel[1], k.strides[0], k.strides[1],
                     k.dilations[0], k.dilations[1], k.pads[0], k.pads[1], k.pads[2], k.pads[3], k.groups, k.zero, k.gap,
                     k.threads);
}

std::int64_t out_size(const Conv& k, std::size_t d) {
  const std::int64_t in = d == 0 ? k.h : k.w, pad = k.pads[d] + k.pads[d + 2], reach = k.dilations[d] * (k.kernel[d] - 1) + 1;
  return k.transposed ? (in - 1) * k.strides[d] + reach - pad : (in + pad - reach) / k.strides[d] + 1;
}

/// Anchor and space; the epilogue is the caller's.
void build(Scene& s, const Conv& k) {
  auto& st = s.stage();
  auto& a = st.anchor;
  a.op = k.transposed ? ir::Op::conv_transpose : ir::Op::conv;
  a.integer = true;
  a.facts = testing::facts(a.op, {{"strides", k.strides}, {"pads", k.pads}, {"dilations", k.dilations}, {"group", k.groups}});
  auto x = s.nhwc(DType::u8, {k.n, k.c, k.h, k.w}, k.kind, k.gap);
  x.quantizer = ir::per_tensor(DType::u8, 0.02F, k.zero);
  a.inputs = {x};
  const ir::Shape w = k.transposed ? ir::Shape{k.c, k.o / k.groups, k.kernel[0], k.kernel[1]}
                                   : ir::Shape{k.o, k.c / k.groups, k.kernel[0], k.kernel[1]};
  a.weights = s.tensor(DType::s8, w, BufferKind::constant);
  st.space = {k.n, k.o, out_size(k, 0), out_size(k, 1)};
  s.plan().threads = k.threads;
}

void plain(Scene& s, const Conv& k) {
  build(s, k);
  s.requantize(1, 2e-4F);
  s.stage().stores = {s.nhwc(DType::u8, s.stage().space, BufferKind::arena, k.gap)};
}

enum class Way { vnni, pairs, emulated, amx };

class GeneratedConv : public ::testing::TestWithParam<Way> {
 protected:
  static const region::Provider& provider() { return GetParam() == Way::emulated ? emulated_amx_provider() : cpu::cpu_provider(); }
  static std::string tactic(bool transposed) {
    const std::string kind = transposed ? "cpu.conv_transpose.u8s8." : "cpu.conv.u8s8.";
    return kind + (GetParam() == Way::vnni ? "avx512vnni.jit" : GetParam() == Way::pairs ? "avx2.jit" : "amx");
  }
  static bool on_tiles() { return GetParam() == Way::emulated || GetParam() == Way::amx; }
  void SetUp() override {
    if (GetParam() == Way::pairs) cap_.emplace(cpu::Isa::avx2);  // they are offered where vpdpbusd is not
  }
  /// "" also where tiles refuse a shape that vpdpbusd takes, counted.
  std::string run(Scene& s, const Conv& k) {
    ++runs_;
    const std::string why = s.compare(provider(), tactic(k.transposed));
    if (why.rfind("refused: kernel needs: property input channels a group", 0) == 0 && on_tiles() && k.groups > 1)
      ++refused_;
    else if (!why.empty())
      return why + "; " + text(k);
    return "";
  }
  void TearDown() override {
    if (on_tiles()) {
      EXPECT_LE(refused_ * 2, runs_) << "most shapes are refused";
    }
  }

 private:
  int runs_ = 0, refused_ = 0;
  std::optional<cpu::CapScope> cap_;
};
std::string name_of(const ::testing::TestParamInfo<Way>& test) {
  constexpr const char* kNames[] = {"vnni", "pairs", "emulated_amx", "amx"};
  return kNames[static_cast<int>(test.param)];
}
INSTANTIATE_TEST_SUITE_P(On, GeneratedConv, ::testing::Values(Way::vnni, Way::pairs, Way::emulated, Way::amx), name_of);

TEST_P(GeneratedConv, ChannelAndPixelTails) {
  std::uint32_t seed = 1;
  for (const std::int64_t o : {1, 3, 15, 16, 17, 31, 32, 33, 48, 49, 63, 64, 65, 80, 129}) {
    for (const std::int64_t w : {1, 2, 5, 6, 7, 11, 12, 13, 25}) {
      for (const std::int64_t c : {1, 3, 4, 17}) {
        Conv k;
        k.o = o, k.w = w, k.c = c, k.h = 1 + static_cast<std::int64_t>(seed % 3), k.gap = static_cast<int>(seed % 2) * 5;
        Scene s(seed++);
        plain(s, k);
        EXPECT_RUNS(run(s, k));
      }
    }
  }
}

TEST_P(GeneratedConv, KernelsStridesDilationsPads) {
  for (std::uint32_t seed = 1; seed <= rounds(100, 250); ++seed) {
    Scene s(seed);
    Conv k;
    k.n = s.pick(1, 2), k.h = s.pick(1, 12), k.w = s.pick(1, 16);
    k.groups = s.pick(0, 2) == 0 ? s.pick(2, 6) : 1;
    k.c = s.pick(1, k.groups > 1 ? 9 : 40) * k.groups;
    k.o = s.pick(1, k.groups > 1 ? 20 : 70) * k.groups;
    k.kernel = {s.pick(1, 5), s.pick(1, 5)};
    k.strides = {s.pick(1, 3), s.pick(1, 3)};
    k.dilations = {s.pick(1, 2), s.pick(1, 2)};
    k.pads = {s.pick(0, 3), s.pick(0, 3), s.pick(0, 3), s.pick(0, 3)};
    const int zeros[] = {0, 128, 255, 7};
    k.zero = zeros[s.pick(0, 3)];
    k.gap = s.pick(0, 1) * 3;
    k.kind = s.pick(0, 3) == 0 ? BufferKind::input : BufferKind::arena;
    k.threads = s.pick(1, 4);
    if (out_size(k, 0) < 1 || out_size(k, 1) < 1) continue;
    plain(s, k);
    EXPECT_RUNS(run(s, k));
  }
}

/// Weights minus zero points need nine bits: vpdpbusd sums two halves of each.
TEST_P(GeneratedConv, WeightZeroPoints) {
  if (on_tiles()) GTEST_SKIP() << "tiles take no zero points of weights (RefusesWithReasons)";
  int compared = 0;
  for (std::uint32_t seed = 1; seed <= 120; ++seed) {
    Scene s(seed);
    Conv k;
    k.transposed = s.pick(0, 4) == 0;
    k.n = s.pick(1, 2), k.h = s.pick(1, 9), k.w = s.pick(1, 14);
    k.groups = s.pick(0, 3) == 0 ? s.pick(2, 4) : 1;
    k.c = s.pick(1, k.groups > 1 ? 9 : 70) * k.groups;
    k.o = s.pick(1, k.groups > 1 ? 20 : 70) * k.groups;
    k.kernel = {s.pick(1, 3), s.pick(1, 3)};
    k.strides = {s.pick(1, 2), s.pick(1, 2)};
    if (!k.transposed) k.pads = {s.pick(0, 1), s.pick(0, 1), s.pick(0, 1), s.pick(0, 1)};
    const int zeros[] = {0, 128, 255, 7};
    k.zero = zeros[s.pick(0, 3)];
    k.gap = s.pick(0, 1) * 3;
    k.kind = s.pick(0, 3) == 0 ? BufferKind::input : BufferKind::arena;
    k.threads = s.pick(1, 3);
    if (out_size(k, 0) < 1 || out_size(k, 1) < 1) continue;
    plain(s, k);
    auto& zero = s.stage().anchor.weight_zero;
    const std::int64_t entries = s.pick(0, 1) == 0 ? 1 : k.o;
    for (std::int64_t c = 0; c < entries; ++c) zero.push_back(s.pick(-127, 127));
    if (std::all_of(zero.begin(), zero.end(), [](int z) { return z == 0; })) zero[0] = 127;
    EXPECT_RUNS(run(s, k));
    ++compared;
  }
  EXPECT_GT(compared, 80);
}

// Few channels, whose taps and two rows of them lie side by side where strides are even.
TEST_P(GeneratedConv, FirstLayers) {
  std::uint32_t seed = 1;
  for (const std::int64_t c : {1, 2, 3, 4, 6}) {
    for (const std::int64_t kernel : {2, 3, 4, 5, 7}) {
      for (const std::int64_t stride : {1, 2, 3, 4}) {
        for (const int n : {1, 2}) {
          Scene s(seed++);
          Conv k;
          k.n = n, k.c = c, k.kernel = {kernel, std::max<std::int64_t>(2, kernel - s.pick(0, 1))},
          k.strides = {stride, s.pick(1, stride)};
          k.h = s.pick(kernel, 18), k.w = s.pick(kernel, 40), k.o = s.pick(1, 36);
          k.pads = {s.pick(0, kernel), s.pick(0, kernel), s.pick(0, kernel), s.pick(0, kernel)};
          if (s.pick(0, 4) == 0) k.dilations = {s.pick(1, 2), s.pick(1, 2)};
          k.zero = static_cast<int>(s.pick(0, 255)), k.gap = s.pick(0, 3) == 0 ? 3 : 0;
          k.kind = s.pick(0, 2) == 0 ? BufferKind::input : BufferKind::arena;
          k.threads = s.pick(1, 5);
          if (out_size(k, 0) < 1 || out_size(k, 1) < 1) continue;
          plain(s, k);
          EXPECT_RUNS(run(s, k));
        }
      }
    }
  }
}

TEST_P(GeneratedConv, Transposed) {
  for (std::uint32_t seed = 1; seed <= rounds(100, 250); ++seed) {
    Scene s(seed);
    Conv k;
    k.transposed = true;
    k.n = s.pick(1, 2), k.h = s.pick(1, 7), k.w = s.pick(1, 8);
    k.groups = s.pick(0, 2) == 0 ? s.pick(2, 4) : 1;
    k.c = s.pick(1, 20) * k.groups, k.o = s.pick(1, k.groups > 1 ? 9 : 70) * k.groups;
    k.kernel = {s.pick(1, 4), s.pick(1, 4)};
    k.strides = {s.pick(1, 3), s.pick(1, 3)};
    k.dilations = {s.pick(1, 2), s.pick(1, 2)};
    k.pads = {s.pick(0, 1), s.pick(0, 1), s.pick(0, 1), s.pick(0, 1)};
    k.gap = s.pick(0, 1) * 3;
    k.threads = s.pick(1, 3);
    if (out_size(k, 0) < 1 || out_size(k, 1) < 1) continue;
    plain(s, k);
    EXPECT_RUNS(run(s, k));
  }
}

// A SiLU in floats, enough pixels and one store: the epilogue of a tile runs among the next one's dots. Reductions that end there,
// and reductions that go on in loops.
TEST_P(GeneratedConv, LongEpilogues) {
  std::uint32_t seed = 1;
  for (const std::int64_t o : {32, 45, 64}) {
    for (const std::int64_t c : {4, 100, 8, 32}) {
      Conv k;
      k.o = o, k.c = c, k.h = 25, k.w = 41, k.gap = static_cast<int>(seed % 2) * 3;
      if (c == 8 || c == 32) k.kernel = {3, 3}, k.pads = {1, 1, 1, 1};
      Scene s(seed++);
      build(s, k);
      auto& st = s.stage();
      st.operands = {{s.along(DType::f32, st.space, 1, 3e-4F), {}}, {s.along(DType::f32, st.space, 1), {}}};
      auto& p = st.program;
      p.operand_count = 2;
      program::ProgramOps ops{p};
      const int x = p.push(Op::fma, p.push(Op::i2f, p.push(Op::acc_i)), p.load(Op::load_f, 0), p.load(Op::load_f, 1));
      const int y = p.push(Op::mul, x, program::unary(ops, ir::Op::sigmoid, {}, x));
      const int q =
          p.push(Op::f2i, p.push(Op::min, p.push(Op::max, p.push(Op::div, y, p.imm_f(0.05F)), p.imm_f(-128)), p.imm_f(127)));
      p.outputs = {{p.push(Op::add_i, q, p.imm_i(128)), DType::u8}};
      st.stores = {s.nhwc(DType::u8, st.space, BufferKind::arena, k.gap)};
      EXPECT_RUNS(run(s, k));
    }
  }
}

TEST_P(GeneratedConv, LongReductionsRunInLoops) {
  std::uint32_t seed = 1;
  for (const std::int64_t c : {64, 200, 252, 256, 260, 515}) {
    for (const std::int64_t kernel : {1, 3}) {
      for (const std::int64_t dilation : {1, 2}) {
        Conv k;
        k.c = c, k.o = 70, k.h = 5, k.w = 5;
        k.kernel = {kernel, kernel}, k.pads = {dilation, 1, 1, dilation}, k.dilations = {dilation, dilation};
        Scene s(seed++);
        plain(s, k);
        EXPECT_RUNS(run(s, k));
      }
    }
  }
}

TEST_P(GeneratedConv, RowsOfAGemmAreThePixels) {
  std::uint32_t seed = 1;
  for (const std::int64_t rows : {1, 2, 5, 6, 7, 12, 13}) {
    for (const std::int64_t c : {4, 100, 512}) {
      for (const std::int64_t o : {1, 10, 64, 100}) {
        Conv k;
        k.n = rows, k.c = c, k.o = o, k.h = 1, k.w = 1, k.threads = 1 + static_cast<int>(seed % 3);
        Scene s(seed++);
        plain(s, k);
        EXPECT_RUNS(run(s, k));
      }
    }
  }
}

/// Channels and widths that networks have, and every way of reading pixels: in place, one copy, taps side by side.
TEST_P(GeneratedConv, ShapesOfNetworks) {
  std::uint32_t seed = 1;
  for (const std::int64_t c : {3, 8, 16, 32, 48, 64, 80, 96, 192}) {
    for (const std::int64_t w : {1, 7, 14, 19, 20, 33}) {
      for (const int shape : {0, 1, 2, 3}) {  // 1x1, 1x1 / 2, 3x3, 3x3 / 2
        Conv k;
        k.c = c, k.w = w;
        Scene s(seed++);
        k.h = s.pick(1, 3), k.o = s.pick(0, 1) == 0 ? 16 * s.pick(1, 6) : s.pick(1, 70), k.zero = s.pick(0, 1) * 131;
        if (shape >= 2) k.kernel = {3, 3}, k.pads = {1, 1, 1, 1};
        if (shape % 2 == 1) k.strides = {2, 2};
        k.gap = s.pick(0, 2) == 0 ? 64 : 0;
        k.threads = s.pick(1, 3);
        plain(s, k);
        ASSERT_NO_FATAL_FAILURE(EXPECT_RUNS(run(s, k)));
        if (::testing::Test::IsSkipped()) return;
      }
    }
  }
}

/// Residuals, per-image factors, upsampled operands, several stores of all types.
TEST_P(GeneratedConv, Operands) {
  for (std::uint32_t seed = 1; seed <= rounds(80, 200); ++seed) {
    Scene s(seed);
    Conv k;
    k.n = s.pick(1, 3), k.h = s.pick(1, 6), k.w = s.pick(1, 14), k.c = s.pick(1, 20), k.o = s.pick(1, 80), k.threads = s.pick(1, 3);
    k.transposed = s.pick(0, 4) == 0;
    if (k.transposed) k.strides = {2, 2}, k.kernel = {2, 3};
    if (!k.transposed && s.pick(0, 1) == 0) k.kernel = {3, 3}, k.pads = {1, 1, 1, 1};
    if (s.pick(0, 4) == 0) k.h = k.w = 1, k.kernel = {1, 1}, k.strides = {1, 1}, k.pads = {0, 0, 0, 0};
    build(s, k);
    auto& st = s.stage();
    s.requantize(1, 2e-4F);
    auto& p = st.program;
    int v = 1;  // i2f of the accumulator
    for (std::size_t i = 0; i < p.code.size(); ++i) {
      if (p.code[i].op == Op::fma) v = static_cast<int>(i);
    }
    const ir::Shape full = st.space, image{full[0], full[1], 1, 1}, map{full[0], 1, full[2], full[3]}, one{1, 1, 1, 1};
    const auto broadcast = [&](region::TensorRef r) {
      for (std::size_t d = 0; d < 4; ++d) {
        if (r.dims[d] == 1) r.strides[d] = 0;
      }
      r.dims = full;
      return r;
    };
    const DType types[] = {DType::u8, DType::s8, DType::s32, DType::f32, DType::f16, DType::bf16};
    const int operands = s.pick(1, 4);
    for (int i = 0; i < operands; ++i) {
      const DType t = types[s.pick(0, 5)];
      region::Operand o;
      switch (s.pick(0, 4)) {
        case 0: o.ref = s.nhwc(t, full, s.pick(0, 1) == 0 ? BufferKind::arena : BufferKind::input, s.pick(0, 1) * 4); break;
        case 1: o.ref = broadcast(s.nhwc(t, image)); break;
        case 2: o.ref = broadcast(s.tensor(t, map)); break;
        case 3: o.ref = broadcast(s.tensor(t, one)); break;
        default: {
          const std::int64_t dy = s.pick(1, 3), dx = s.pick(1, 3);
          o.ref = s.nhwc(t, {full[0], full[1], (full[2] + dy - 1) / dy, (full[3] + dx - 1) / dx});
          o.ref.dims = full;
          o.div = {1, 1, dy, dx};
        }
      }
      const bool is_int = t == DType::u8 || t == DType::s8 || t == DType::s32;
      int r = p.load(is_int ? Op::load_i : Op::load_f, static_cast<int>(st.operands.size()));
      if (is_int) r = p.push(Op::i2f, p.push(Op::sub_i, r, p.imm_i(5)));
      st.operands.push_back(std::move(o));
      p.operand_count = static_cast<int>(st.operands.size());
      v = s.pick(0, 1) == 0 ? p.push(Op::add, v, p.push(Op::mul, r, p.imm_f(0.01F))) : p.push(Op::fma, r, p.imm_f(0.03F), v);
    }
    int q = p.push(Op::max, p.push(Op::div, v, p.imm_f(0.7F)), p.imm_f(-9));
    q = p.push(Op::add_i, p.push(Op::f2i, p.push(Op::min, q, p.imm_f(246))), p.imm_i(9));
    const int s8 = p.push(Op::max_i, p.push(Op::min_i, p.push(Op::sub_i, q, p.imm_i(128)), p.imm_i(127)), p.imm_i(-128));
    std::vector<program::Output> all{p.outputs[0],    {q, DType::u8},   {s8, DType::s8}, {v, DType::f32},
                                     {v, DType::f16}, {v, DType::bf16}, {q, DType::s32}};
    std::shuffle(all.begin(), all.end(), s.rng());
    p.outputs.assign(all.begin(), all.begin() + s.pick(1, 4));
    st.stores.clear();
    for (const auto& o : p.outputs)
      st.stores.push_back(s.nhwc(o.type, full, s.pick(0, 2) == 0 ? BufferKind::output : BufferKind::arena, s.pick(0, 1) * 7));
    EXPECT_RUNS(run(s, k) + "");
  }
}

/// Memory whose last byte lies before a page that cannot be read.
class Fenced {
 public:
  explicit Fenced(std::size_t bytes) {
    const std::size_t page = 4096, size = (bytes + page - 1) / page * page;
    map_ = static_cast<std::byte*>(mmap(nullptr, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    size_ = size + page;
    mprotect(map_ + size, page, PROT_NONE);
    at_ = map_ + size - bytes;
  }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  ~Fenced() { munmap(map_, size_); }
  std::byte* at() const { return at_; }

 private:
  std::byte *map_ = nullptr, *at_ = nullptr;
  std::size_t size_ = 0;
};

// Inputs and outputs belong to the caller and are exactly as long as they say: no byte past them is touched.
TEST_P(GeneratedConv, StaysInsideTheCallersBuffers) {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    Scene s(seed);
    Conv k;
    k.kind = BufferKind::input;
    k.h = s.pick(1, 4), k.w = s.pick(1, 7), k.c = s.pick(1, 21), k.o = s.pick(1, 70);
    if (seed % 2 == 0) k.kernel = {std::min<std::int64_t>(2, k.h), std::min<std::int64_t>(3, k.w)};
    if (seed % 5 == 0) k.c = k.o = k.groups = s.pick(2, 70), k.kernel = {3, 3}, k.pads = {1, 1, 1, 1};
    build(s, k);
    s.requantize(1, 2e-4F);
    auto& st = s.stage();
    auto& p = st.program;
    st.operands.push_back({s.nhwc(DType::u8, st.space, BufferKind::input), {}});
    p.operand_count = 3;
    p.outputs.push_back({p.push(Op::add_i, p.push(Op::acc_i), p.load(Op::load_i, 2)), DType::s32});
    st.stores = {s.nhwc(DType::u8, st.space, BufferKind::output), s.nhwc(DType::s32, st.space, BufferKind::output)};
    for (const auto& offer : provider().offers(s.region(), s.plan())) {
      if ((offer.tactic.family.find("amx") != std::string::npos) != on_tiles()) continue;
      if ((offer.tactic.family.find("avx2") != std::string::npos) != (GetParam() == Way::pairs)) continue;
      if (cpu::lacks_capability(offer.refusal)) GTEST_SKIP() << cpu::in_words(offer.refusal);
      if (!offer.refusal.empty()) continue;
      s.region().tactic = offer.tactic;
      auto made = provider().compile(s.region(), s.plan(), offer.tactic);
      ASSERT_TRUE(made) << made.error().message;
      const auto& packed = made->constants;
      std::vector<const std::byte*> at;
      for (const auto& t : packed) at.push_back(t.bytes().data());
      auto kernel = region::as_host_kernel(provider().load(s.region(), s.with_packed(packed), {at, {}, {}}));
      ASSERT_TRUE(kernel) << kernel.error().message;
      region::Memory expected, actual;
      auto copy = s.memory;
      std::vector<std::unique_ptr<Fenced>> fenced;
      for (std::size_t b = 0; b < copy.size(); ++b) {
        const auto& buffer = s.plan().buffers[b];
        const auto bytes = static_cast<std::size_t>(buffer.bytes);
        const bool callers = buffer.kind == BufferKind::input || buffer.kind == BufferKind::output;
        expected.base.push_back(copy[b].data() + 64);
        fenced.push_back(std::make_unique<Fenced>(bytes + (callers ? 0 : 64)));
        std::memcpy(fenced.back()->at(), s.memory[b].data() + 64, bytes);
        actual.base.push_back(fenced.back()->at());
      }
      scalar_region(s.region(), expected);
      std::vector<std::byte> scratch((*kernel)->scratch_bytes() + 64);
      auto* base = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) % 64;
      (*kernel)->run(actual, 0, (*kernel)->tasks(), region::Worker{0, 1, base});
      for (const auto& store : st.stores) {
        const auto bytes = static_cast<std::size_t>(s.plan().buffers[static_cast<std::size_t>(store.buffer)].bytes);
        ASSERT_EQ(std::memcmp(expected.at(store), actual.at(store), bytes), 0)
            << offer.tactic.name() << ", seed " << seed << ": " << text(k);
      }
    }
  }
}

TEST_P(GeneratedConv, RefusesWithReasons) {
  Conv k;
  const auto reason = [](Scene& s) {
    for (const auto& offer : provider().offers(s.region(), s.plan())) {
      if (offer.tactic.provider + "." + offer.tactic.family == tactic(false)) return offer.refusal;  // whatever its parameters are
    }
    return region::unmet("offers", 0, "1");
  };
  {
    Scene s(1);
    plain(s, k);
    if (cpu::lacks_capability(reason(s))) GTEST_SKIP() << cpu::in_words(reason(s));
    EXPECT_EQ(spelled(reason(s)), "");
    s.stage().anchor.weight_zero = {3};
    EXPECT_EQ(reason(s), !on_tiles() ? Reasons() : region::unmet("weight zero point", 3, "0"));
    s.stage().anchor.weight_zero = {-128};
    const char* const halves = "more than -128: a weight minus it must be less than 255";
    EXPECT_EQ(reason(s), region::unmet("weight zero point", -128, !on_tiles() ? halves : "0"));
  }
  {
    Scene s(2);
    plain(s, k);
    s.stage().stores[0].strides[1] = 35;
    EXPECT_EQ(reason(s), region::unmet("channel stride of store 0", 35, "1"));
  }
  {
    Scene s(3);
    plain(s, k);
    s.stage().anchor.integer = false;
    EXPECT_EQ(reason(s), region::unmet("products", "float", "integer"));
  }
  {
    Scene s(4);
    plain(s, k);
    s.stage().anchor.inputs[0].strides[1] = 9;
    EXPECT_EQ(reason(s), region::unmet("channel stride of the input", 9, "1"));
  }
}

}  // namespace
}  // namespace octavo::testing
