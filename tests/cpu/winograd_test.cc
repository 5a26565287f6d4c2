// Winograd's convolution against brute force, over shapes around its tiles: 2 x 2 outputs, 6 tiles of a product, 16 columns of a vector, 64 of a panel, blocks of 36
// tiles. Its sums are others than the brute force's: they agree within the tolerance of float convolutions, and infinities and NaN come out where they should.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;
using Ints = std::vector<std::int64_t>;

constexpr float kTolerance = 1e-4F, kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

struct Conv {
  std::int64_t n = 1, c = 16, h = 5, w = 7, o = 16;
  Ints pads{1, 1, 1, 1};
  int gap = 0;
  Ints kernel{3, 3}, strides{1, 1}, dilations{1, 1};
  std::int64_t groups = 1;
};
enum class Tail { sum, bias, residual, codes };

void build(Scene& s, const Conv& k, Tail tail) {
  auto& st = s.stage();
  auto& a = st.anchor;
  a.op = ir::Op::conv;
  a.integer = false;
  a.facts = testing::facts(a.op, {{"strides", k.strides}, {"pads", k.pads}, {"dilations", k.dilations}, {"group", k.groups}});
  a.inputs = {s.nhwc(DType::f32, {k.n, k.c, k.h, k.w}, BufferKind::arena, k.gap)};
  a.weights = s.tensor(DType::f32, {k.o, k.c / k.groups, k.kernel[0], k.kernel[1]}, BufferKind::constant, {}, 0, 0.5F);
  const auto out = [&](std::size_t d) {
    const std::int64_t in = d == 0 ? k.h : k.w;
    return (in + k.pads[d] + k.pads[d + 2] - k.dilations[d] * (k.kernel[d] - 1) - 1) / k.strides[d] + 1;
  };
  st.space = {k.n, k.o, out(0), out(1)};
  auto& p = st.program;
  int v = p.push(Op::acc_f);
  DType type = DType::f32;
  if (tail != Tail::sum) {
    st.operands.push_back({s.along(DType::f32, st.space, 1), {}});
    p.operand_count = 1;
    v = p.push(Op::add, v, p.load(Op::load_f, 0));
  }
  if (tail == Tail::residual) {
    st.operands.push_back({s.nhwc(DType::f32, st.space), {}});
    p.operand_count = 2;
    v = p.push(Op::max, p.push(Op::add, v, p.load(Op::load_f, 1)), p.imm_f(0));
  }
  if (tail == Tail::codes) {  // no sum of these seeds is so near the threshold that the order of the additions decides
    v = p.push(Op::f2i, p.push(Op::sel_lt, v, p.imm_f(0.1F), p.imm_f(3), p.imm_f(200)));
    type = DType::u8;
  }
  p.outputs = {{v, type}};
  st.stores = {s.nhwc(type, st.space, BufferKind::arena, k.gap)};
}

class Winograd : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string run(Scene& s, const Conv& k) {
    const std::string why = s.compare(cpu::cpu_provider(), std::string("cpu.conv.f32.winograd.") + GetParam(), kTolerance);
    return why.empty() ? why
                       : fmt::format("{}; n{} c{} {}x{} o{} pads {} {} {} {} gap {}", why, k.n, k.c, k.h, k.w, k.o, k.pads[0],
                                     k.pads[1], k.pads[2], k.pads[3], k.gap);
  }
};
INSTANTIATE_TEST_SUITE_P(Isa, Winograd, ::testing::Values("avx2", "avx512"));

TEST_P(Winograd, EveryTileAndRemainder) {
  std::uint32_t seed = 1;
  for (const std::int64_t c : {16, 17, 24, 40}) {
    for (const std::int64_t o : {1, 15, 16, 17, 33, 48, 64, 65, 130}) {
      for (const std::int64_t h : {1, 2, 5}) {
        for (const std::int64_t w : {1, 2, 3, 12, 13}) {
          const Conv k{seed % 3 == 0 ? 2 : 1, c, h, w, o, {}, seed % 4 == 0 ? 3 : 0};
          Conv padded = k;
          padded.pads = std::array<Ints, 3>{Ints{1, 1, 1, 1}, Ints{2, 0, 1, 3}, Ints{1, 2, 2, 1}}[seed % 3];
          if (w + padded.pads[1] + padded.pads[3] < 3 || h + padded.pads[0] + padded.pads[2] < 3) continue;
          Scene s(seed++);
          build(s, padded, static_cast<Tail>(seed % 4));
          EXPECT_RUNS(run(s, padded));
        }
      }
    }
  }
}

TEST_P(Winograd, BlocksAndSplits) {
  std::uint32_t seed = 1000;
  for (const char* rows : {"", "6", "7", "13", "64"}) {
    for (const char* splits : {"", "1", "2", "3"}) {
      for (const std::int64_t size : {9, 14}) {
        const Conv k{1, 16, size, 26, 140};
        Scene s(seed++);
        build(s, k, Tail::residual);
        if (rows[0] != 0) s.parameters["rows"] = rows;
        if (splits[0] != 0) s.parameters["splits"] = splits;
        EXPECT_RUNS(run(s, k));
      }
    }
  }
}

/// Overwrites element `at` of a tensor's buffer.
void put(Scene& s, const region::TensorRef& t, std::int64_t at, float value) {
  std::memcpy(s.memory[static_cast<std::size_t>(t.buffer)].data() + 64 + at * 4, &value, 4);
}

TEST_P(Winograd, InfinitiesAndNanStayInTheirWindows) {
  std::uint32_t seed = 2000;
  for (const float value : {kInf, -kInf, kNan, 3e38F}) {
    for (const std::int64_t at : {0, 5, 17, 48, 62}) {
      const Conv k{1, 20, 7, 9, 24};
      Scene s(seed++);
      build(s, k, Tail::bias);
      put(s, s.stage().anchor.inputs[0], at * k.c + at % k.c, value);
      if (value == 3e38F) put(s, s.stage().anchor.inputs[0], (at + 1) % 63 * k.c + at % k.c, value);  // sums of these overflow
      EXPECT_RUNS(run(s, k));
    }
  }
}

TEST_P(Winograd, RefusesWhatItCannotCompute) {
  const std::string name = std::string("cpu.conv.f32.winograd.") + GetParam();
  const auto refused = [&](Conv k, std::string_view reason) {
    Scene s(1);
    build(s, k, Tail::sum);
    const std::string why = s.compare(cpu::cpu_provider(), name, kTolerance);
    if (why.rfind("skip: ", 0) == 0) GTEST_SKIP() << why;
    EXPECT_TRUE(why.rfind("refused: ", 0) == 0 && why.find(reason) != std::string::npos) << why;
  };
  Conv k;
  k.kernel = {1, 1}, k.pads = {0, 0, 0, 0};
  refused(k, "3 x 3 taps");
  k = {};
  k.strides = {2, 2};
  refused(k, "stride and dilation");
  k = {};
  k.dilations = {2, 2};
  refused(k, "stride and dilation");
  k = {};
  k.groups = 4;
  refused(k, "groups");
  k = {};
  k.c = 8;
  refused(k, "input channels");
}

}  // namespace
}  // namespace octavo::testing
