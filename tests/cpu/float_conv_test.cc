// Generated convolutions of floats, with vectors of 16 (AVX-512) and of 8 (AVX2), and of bfloat16 (vdpbf16ps, tiles), against brute force: shapes around the tile sizes, strides, dilations, groups, pads, epilogues.
// Sums are in another order than the brute force's: results agree within n roundings of the sum of magnitudes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/half.h"
#include "cpu/cap.h"
#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;
using Ints = std::vector<std::int64_t>;

constexpr float kTolerance = 1e-4F;

struct Conv {
  std::int64_t n = 1, c = 16, h = 5, w = 7, o = 16;
  Ints kernel{1, 1}, strides{1, 1}, dilations{1, 1}, pads{0, 0, 0, 0};
  std::int64_t groups = 1;
  int gap = 0;
  bool transposed = false;
  BufferKind kind = BufferKind::arena;
  int threads = 1;
  DType type = DType::f32;  ///< of data and weights
};

std::string text(const Conv& k) {
  return fmt::format("{} n{} c{} {}x{} o{} k{}x{} s{}x{} d{}x{} p{},{},{},{} g{} gap{} threads{}", k.transposed ? "convT" : "conv",
                     k.n, k.c, k.h, k.w, k.o, k.kernel[0], k.kernel[1], k.strides[0], k.strides[1], k.dilations[0], k.dilations[1],
                     k.pads[0], k.pads[1], k.pads[2], k.pads[3], k.groups, k.gap, k.threads);
}

std::int64_t out_size(const Conv& k, std::size_t d) {
  const std::int64_t in = d == 0 ? k.h : k.w, pad = k.pads[d] + k.pads[d + 2], reach = k.dilations[d] * (k.kernel[d] - 1) + 1;
  return k.transposed ? (in - 1) * k.strides[d] + reach - pad : (in + pad - reach) / k.strides[d] + 1;
}

/// What follows the sum: nothing, bias, bias and relu, bias and clip, bias, residual and relu, SiLU without bias; a chain of operations
/// that reads the sum and the residual until its end, with comparisons; codes; 16-bit floats of a 16-bit residual.
enum class Tail { sum, bias, relu, clip, residual, silu, chain, codes, halves };
constexpr int kTails = 9;

void build(Scene& s, const Conv& k, Tail tail) {
  auto& st = s.stage();
  auto& a = st.anchor;
  a.op = k.transposed ? ir::Op::conv_transpose : ir::Op::conv;
  a.integer = false;
  a.facts = testing::facts(a.op, {{"strides", k.strides}, {"pads", k.pads}, {"dilations", k.dilations}, {"group", k.groups}});
  a.inputs = {s.nhwc(k.type, {k.n, k.c, k.h, k.w}, k.kind, k.gap)};
  const ir::Shape w = k.transposed ? ir::Shape{k.c, k.o / k.groups, k.kernel[0], k.kernel[1]}
                                   : ir::Shape{k.o, k.c / k.groups, k.kernel[0], k.kernel[1]};
  a.weights = s.tensor(k.type, w, BufferKind::constant, {}, 0, 0.5F);
  st.space = {k.n, k.o, out_size(k, 0), out_size(k, 1)};
  s.plan().threads = k.threads;
  auto& p = st.program;
  int v = p.push(Op::acc_f);
  if (tail != Tail::sum && tail != Tail::silu) {
    st.operands.push_back({s.along(DType::f32, st.space, 1), {}});
    p.operand_count = 1;
    v = p.push(Op::add, v, p.load(Op::load_f, 0));
  }
  const DType beside = tail == Tail::halves ? DType::f16 : DType::f32;
  if (tail == Tail::residual || tail == Tail::chain || tail == Tail::halves) {
    st.operands.push_back({s.nhwc(beside, st.space), {}});
    p.operand_count = 2;
    v = p.push(Op::add, v, p.load(Op::load_f, 1));
  }
  if (tail == Tail::relu || tail == Tail::residual) v = p.push(Op::max, p.imm_f(0), v);
  if (tail == Tail::clip) v = p.push(Op::min, p.push(Op::max, v, p.imm_f(0)), p.imm_f(1));
  if (tail == Tail::silu) v = p.push(Op::div, v, p.push(Op::add, p.push(Op::mul, v, v), p.imm_f(1)));
  DType type = DType::f32;
  if (tail == Tail::chain) {
    const int sum = v, residual = p.load(Op::load_f, 1);
    for (int i = 0; i < 6; ++i) {
      v = p.push(Op::fma, v, p.imm_f(0.5F), residual);
      v = p.push(Op::sub, v, p.push(Op::mul, sum, p.imm_f(0.25F)));
    }
    v = p.push(Op::max, v, p.push(Op::min, sum, residual));
    // The larger of two, and of what is no number the residual: no threshold that another order of additions crosses with a leap.
    v = p.push(Op::sel_lt, residual, v, v, residual);
  }
  if (tail == Tail::halves) {
    v = p.push(Op::sel_lt, v, p.imm_f(0.1F), p.imm_f(3), p.load(Op::load_f, 1));  // all are halves: sums in another order are not
    type = DType::f16;
  }
  if (tail == Tail::codes) {  // no sum of these seeds is so near the threshold that the order of the additions decides
    v = p.push(Op::sel_lt, v, p.imm_f(0.1F), p.imm_f(3), p.imm_f(200));
    v = p.push(Op::f2i, v);
    type = DType::u8;
  }
  if (k.type == DType::bf16 && type == DType::f32 && k.o % 2 == 0) v = p.push(Op::to_bf16, v), type = DType::bf16;
  p.outputs = {{v, type}};
  st.stores = {s.nhwc(type, st.space, BufferKind::arena, k.gap)};
}

std::string run(Scene& s, const Conv& k, const std::string& tactic) {
  const std::string why = s.compare(cpu::cpu_provider(), tactic, kTolerance);
  return why.empty() ? why : why + "; " + text(k);
}
struct Kind {
  std::string_view name;  ///< of the instruction set: caps what is offered
  DType type;
  std::string_view conv, depthwise;  ///< families are "conv." and this, "conv_transpose." and this; empty: none
};
constexpr std::array<Kind, 4> kKinds{{{"avx2", DType::f32, "f32.avx2.jit", "f32.avx2.jit"},
                                      {"avx512", DType::f32, "f32.avx512.jit", "f32.avx512.jit"},
                                      {"avx512vnni", DType::bf16, "bf16.avx512bf16.jit", "bf16.avx512.jit"},
                                      {"amx", DType::bf16, "bf16.amx", ""}}};

/// Parametrized by the families.
class FloatConv : public ::testing::TestWithParam<Kind> {
 protected:
  /// "" also where a sum of bfloat16 is over runs of an odd number of elements, or tiles do not fit: others compute those.
  std::string run(Scene& s, const Conv& k) {
    const std::string why = testing::run(s, k, fmt::format("cpu.{}.{}", k.transposed ? "conv_transpose" : "conv", GetParam().conv));
    const auto says = [&](std::string_view reason) {
      return why.rfind("refused: ", 0) == 0 && why.find(reason) != std::string::npos;
    };
    if (GetParam().type == DType::bf16 && (says("an even number") || says("parts of 64 bytes") || says("caller's rows"))) {
      ++refused_;
      return "";
    }
    ++ran_;
    return why;
  }
  static std::string run_depthwise(Scene& s, const Conv& k) {
    return testing::run(s, k, fmt::format("cpu.depthwise.{}", GetParam().depthwise));
  }
  static bool has_depthwise() { return !GetParam().depthwise.empty(); }
  void TearDown() override {
    if (!IsSkipped()) EXPECT_GE(ran_ * 5, refused_) << "most are refused";
  }

 private:
  cpu::CapScope cap_{*cpu::find_isa(GetParam().name)};
  int ran_ = 0, refused_ = 0;
};
const auto kName = [](const auto& test) { return std::string(test.param.name); };
INSTANTIATE_TEST_SUITE_P(Isas, FloatConv, ::testing::ValuesIn(kKinds), kName);

Tail tail_of(std::uint32_t seed) {
  return static_cast<Tail>(seed % 7);  // of 32 bits
}
bool is_narrow(Tail tail) {
  return tail == Tail::codes || tail == Tail::halves;
}

TEST_P(FloatConv, ChannelAndPixelTails) {
  std::uint32_t seed = 1;
  for (const std::int64_t o : {1, 3, 7, 8, 9, 13, 15, 16, 17, 23, 24, 25, 31, 32, 33, 48, 49, 63, 64, 65, 80, 129}) {
    for (const std::int64_t w : {1, 2, 5, 6, 7, 11, 12, 13, 25}) {
      for (std::int64_t c : {1, 3, 33, 97}) {  // reductions that are pipelined, straight, looped
        if (GetParam().type == DType::bf16) ++c;
        Conv k;
        k.type = GetParam().type;
        k.o = o, k.w = w, k.c = c, k.h = 1 + static_cast<std::int64_t>(seed % 3), k.gap = static_cast<int>(seed % 2) * 5;
        Scene s(seed);
        build(s, k, tail_of(seed++));
        EXPECT_RUNS(run(s, k));
      }
    }
  }
}

TEST_P(FloatConv, KernelsStridesDilationsPads) {
  for (std::uint32_t seed = 1; seed <= rounds(100, 300); ++seed) {
    Scene s(seed);
    Conv k;
    k.type = GetParam().type;
    k.n = s.pick(1, 2), k.h = s.pick(1, 12), k.w = s.pick(1, 16);
    k.groups = s.pick(0, 2) == 0 ? s.pick(2, 6) : 1;
    k.c = s.pick(2, k.groups > 1 ? 9 : 40) * k.groups;
    k.o = s.pick(1, k.groups > 1 ? 20 : 70) * k.groups;
    k.kernel = {s.pick(1, 5), s.pick(1, 5)};
    k.strides = {s.pick(1, 3), s.pick(1, 3)};
    k.dilations = {s.pick(1, 2), s.pick(1, 2)};
    k.pads = {s.pick(0, 3), s.pick(0, 3), s.pick(0, 3), s.pick(0, 3)};
    k.gap = s.pick(0, 1) * 3;
    k.kind = s.pick(0, 3) == 0 ? BufferKind::input : BufferKind::arena;
    k.threads = s.pick(1, 4);
    if (out_size(k, 0) < 1 || out_size(k, 1) < 1) continue;
    build(s, k, tail_of(seed));
    EXPECT_RUNS(run(s, k));
  }
}

TEST_P(FloatConv, Transposed) {
  for (std::uint32_t seed = 1; seed <= rounds(60, 150); ++seed) {
    Scene s(seed);
    Conv k;
    k.transposed = true;
    k.type = GetParam().type;
    k.n = s.pick(1, 2), k.h = s.pick(1, 7), k.w = s.pick(1, 9);
    k.groups = s.pick(0, 3) == 0 ? 2 : 1;
    k.c = s.pick(2, 30) * k.groups, k.o = s.pick(1, 40) * k.groups;
    k.kernel = {s.pick(1, 4), s.pick(1, 4)};
    k.strides = {s.pick(1, 3), s.pick(1, 3)};
    k.pads = {s.pick(0, 1), s.pick(0, 1), s.pick(0, 1), s.pick(0, 1)};
    k.threads = s.pick(1, 3);
    if (out_size(k, 0) < 1 || out_size(k, 1) < 1) continue;
    build(s, k, tail_of(seed));
    EXPECT_RUNS(run(s, k));
  }
}

/// Blocks of two vectors, whose weights pass half as often; rows of a batch as pixels.
TEST_P(FloatConv, LongReductionsAndRowsOfABatch) {
  std::uint32_t seed = 1;
  for (const std::int64_t o : {20, 64, 100}) {
    for (const std::int64_t w : {1, 7, 13, 25}) {
      Conv k;
      k.type = GetParam().type;
      k.o = o, k.w = w, k.c = 300, k.h = 3, k.kernel = {3, 3}, k.pads = {1, 1, 1, 1};
      Scene s(seed);
      build(s, k, tail_of(seed++));
      EXPECT_RUNS(run(s, k));
      Conv rows;
      rows.type = GetParam().type;
      rows.n = w, rows.o = o, rows.c = 2200, rows.h = rows.w = 1;
      Scene t(seed);
      build(t, rows, tail_of(seed++));
      EXPECT_RUNS(run(t, rows));
    }
  }
}

TEST_P(FloatConv, CodesAndHalvesAreStored) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    Scene s(seed);
    Conv k;
    k.type = GetParam().type;
    k.c = s.pick(2, 40), k.o = s.pick(1, 140), k.h = s.pick(1, 6), k.w = s.pick(1, 20);
    build(s, k, seed % 2 == 0 ? Tail::codes : Tail::halves);
    EXPECT_RUNS(run(s, k));
  }
}

/// Infinity and NaN of one group stay in it, and of one pixel in the windows that reach it.
TEST_P(FloatConv, NotFinite) {
  for (const bool depthwise : {false, true}) {
    if (depthwise && !has_depthwise()) continue;
    for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      for (const std::int64_t channels : {8, 20, 96}) {
        Conv k;
        k.type = GetParam().type;
        k.groups = depthwise ? channels : 2, k.c = channels, k.o = channels, k.kernel = {3, 3}, k.pads = {1, 1, 1, 1}, k.w = 40;
        Scene s(3);
        build(s, k, Tail::bias);
        auto& x = s.memory[static_cast<std::size_t>(s.stage().anchor.inputs[0].buffer)];
        if (k.type == DType::bf16) {
          *reinterpret_cast<std::uint16_t*>(x.data() + x.size() / 8 * 4) = f32_to_bf16(value);
        } else {
          *reinterpret_cast<float*>(x.data() + x.size() / 8 * 4) = value;  // somewhere inside
        }
        EXPECT_RUNS(depthwise ? run_depthwise(s, k) : run(s, k));
      }
    }
  }
}

TEST_P(FloatConv, RefusesWhatOthersCompute) {
  Conv k;
  k.type = GetParam().type;
  k.groups = k.c = k.o = 16;
  Scene s(1);
  build(s, k, Tail::bias);
  for (const region::Offer& o : cpu::cpu_provider().offers(s.region(), s.plan())) {
    if (o.tactic.family == fmt::format("conv.{}", GetParam().conv)) {
      EXPECT_FALSE(o.refusal.empty());
    }
    if (o.tactic.family.find("u8s8") != std::string::npos) {
      EXPECT_FALSE(o.refusal.empty()) << "integer code for floats";
    }
  }
}

Conv depthwise(DType type, std::int64_t c, std::int64_t h, std::int64_t w) {
  Conv k;
  k.type = type;
  k.c = k.o = k.groups = c;
  k.h = h, k.w = w;
  k.kernel = {3, 3}, k.pads = {1, 1, 1, 1};
  return k;
}

TEST_P(FloatConv, DepthwiseChannelAndColumnTails) {
  if (!has_depthwise()) GTEST_SKIP() << "no depthwise family on tiles";
  std::uint32_t seed = 1;
  for (const std::int64_t c : {2, 3, 7, 8, 9, 14, 15, 16, 17, 31, 32, 33, 48, 64, 65, 144}) {
    for (const std::int64_t w : {1, 2, 3, 7, 8, 9, 12, 13, 16, 25}) {
      for (const std::int64_t h : {1, 2, 3, 9}) {
        Conv k = depthwise(GetParam().type, c, h, w);
        k.gap = static_cast<int>(seed % 2) * 5;
        Scene s(seed);
        build(s, k, tail_of(seed++));
        EXPECT_RUNS(run_depthwise(s, k));
      }
    }
  }
}

TEST_P(FloatConv, DepthwiseKernelsStridesDilationsPads) {
  if (!has_depthwise()) GTEST_SKIP() << "no depthwise family on tiles";
  for (std::uint32_t seed = 1; seed <= rounds(150, 400); ++seed) {
    Scene s(seed);
    Conv k = depthwise(GetParam().type, s.pick(2, 90), s.pick(1, 14), s.pick(1, 30));
    k.n = s.pick(1, 2);
    k.kernel = {s.pick(1, 11), s.pick(1, 11)};
    k.strides = {s.pick(1, 3), s.pick(1, 3)};
    k.dilations = {s.pick(1, 2), s.pick(1, 2)};
    k.pads = {s.pick(0, 6), s.pick(0, 6), s.pick(0, 6), s.pick(0, 6)};
    k.gap = s.pick(0, 1) * 3;
    k.kind = s.pick(0, 2) == 0 ? BufferKind::input : BufferKind::arena;
    k.threads = s.pick(1, 4);
    if (out_size(k, 0) < 1 || out_size(k, 1) < 1) continue;
    const Tail tail = static_cast<Tail>(s.pick(0, kTails - 1));
    if (is_narrow(tail) && GetParam().name == "avx2") k.c = k.o = k.groups = (k.c + 7) / 8 * 8;
    build(s, k, tail);
    EXPECT_RUNS(run_depthwise(s, k));
  }
}

}  // namespace
}  // namespace octavo::testing
