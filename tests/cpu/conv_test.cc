// Convolutions of the block kernels: kernels, strides, dilations, pads, groups, transposed, zero points, odd layouts, upsampled
// residuals.
#include <gtest/gtest.h>

#include "cpu/provider.h"
#include "cpu/scalar_region.h"
#include "support/facts.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;
using Ints = std::vector<std::int64_t>;

#define EXPECT_SAME(scene, tactic, tolerance)                                               \
  do {                                                                                      \
    const std::string difference = (scene).compare(cpu::cpu_provider(), tactic, tolerance); \
    if (difference.rfind("skip: ", 0) == 0) GTEST_SKIP() << difference;                     \
    EXPECT_EQ(difference, "") << describe(c);                                               \
  } while (false)

struct Case {
  ir::Shape x;       // N, C, spatial
  std::int64_t out;  // channels
  Ints kernel, strides, pads, dilations;
  std::int64_t group = 1;
  bool transposed = false;
};
std::string describe(const Case& c) {
  return "x " + ir::to_string(c.x) + " out " + std::to_string(c.out) + " kernel " + ir::to_string(c.kernel) + " strides " +
         ir::to_string(c.strides) + " pads " + ir::to_string(c.pads) + " dilations " + ir::to_string(c.dilations) + " group " +
         std::to_string(c.group) + (c.transposed ? " transposed" : "");
}

void set_up(Scene& s, const Case& c, bool integer, int gap = 0, DType real = DType::f32) {
  auto& st = s.stage();
  const std::size_t spatial = c.kernel.size();
  st.space = {c.x[0], c.out};
  for (std::size_t d = 0; d < spatial; ++d) {
    const std::int64_t window = (c.kernel[d] - 1) * c.dilations[d] + 1, pads = c.pads[d] + c.pads[spatial + d];
    st.space.push_back(c.transposed ? (c.x[2 + d] - 1) * c.strides[d] + window - pads
                                    : (c.x[2 + d] + pads - window) / c.strides[d] + 1);
  }
  auto& a = st.anchor;
  a.op = c.transposed ? ir::Op::conv_transpose : ir::Op::conv;
  a.facts = testing::facts(a.op, {{"strides", c.strides}, {"pads", c.pads}, {"dilations", c.dilations}, {"group", c.group}});
  a.integer = integer;
  a.inputs = {s.nhwc(integer ? DType::u8 : real, c.x, BufferKind::arena, gap)};
  if (integer) a.inputs[0].quantizer = ir::per_tensor(DType::u8, 0.02F, s.pick(0, 255));
  ir::Shape w = c.transposed ? ir::Shape{c.x[1], c.out / c.group} : ir::Shape{c.out, c.x[1] / c.group};
  w.insert(w.end(), c.kernel.begin(), c.kernel.end());
  a.weights = s.tensor(integer ? DType::s8 : real, w, BufferKind::constant, {}, 0, 0.3F);
  if (integer) {
    s.requantize(1, 0.0005F);
    st.stores = {s.nhwc(DType::u8, st.space, BufferKind::arena, gap)};
  } else {
    auto& p = st.program;
    p.operand_count = 1;
    st.operands = {{s.along(DType::f32, st.space, 1), {}}};
    p.outputs = {{p.push(Op::add, p.push(Op::acc_f), p.load(Op::load_f, 0)), DType::f32}};
    st.stores = {s.nhwc(DType::f32, st.space, BufferKind::arena, gap)};
  }
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const std::int64_t c : {1, 3, 8, 17, 64}) {
    for (const std::int64_t o : {1, 8, 16, 33, 64}) {
      out.push_back({{1, c, 7, 9}, o, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}});
      out.push_back({{2, c, 5, 20}, o, {1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}});
    }
  }
  for (const std::int64_t w : {1, 2, 6, 7, 8, 12, 13, 25}) out.push_back({{1, 4, 3, w}, 40, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}});
  out.push_back({{1, 3, 20, 21}, 24, {7, 7}, {2, 2}, {3, 3, 3, 3}, {1, 1}});
  out.push_back({{1, 8, 20, 21}, 24, {3, 2}, {2, 3}, {0, 1, 2, 0}, {2, 1}});
  out.push_back({{1, 8, 6, 6}, 16, {3, 3}, {1, 1}, {4, 4, 4, 4}, {4, 4}});  // windows wholly in the padding
  out.push_back({{1, 12, 9, 9}, 24, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 4});
  out.push_back({{1, 12, 9, 9}, 24, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, 12});
  out.push_back({{1, 10, 9, 9}, 10, {5, 5}, {1, 1}, {2, 2, 2, 2}, {1, 1}, 10});
  out.push_back({{5, 70, 1, 1}, 37, {1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}});  // a matrix product
  out.push_back({{1, 70, 1, 1}, 100, {1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}});
  out.push_back({{1, 5, 31}, 12, {3}, {2}, {1, 1}, {1}});
  out.push_back({{1, 5, 4, 6, 7}, 12, {3, 3, 3}, {1, 2, 1}, {1, 1, 1, 1, 1, 1}, {1, 1, 1}});
  out.push_back({{1, 16, 80, 9}, 8, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}});  // many row tiles
  for (const std::int64_t stride : {1, 2, 3}) {
    out.push_back({{1, 8, 5, 6}, 24, {2, 2}, {stride, stride}, {0, 0, 0, 0}, {1, 1}, 1, true});
    out.push_back({{2, 8, 5, 6}, 20, {4, 3}, {stride, stride}, {1, 1, 1, 0}, {1, 1}, 1, true});
    out.push_back({{1, 8, 5, 6}, 20, {3, 3}, {stride, 2}, {1, 0, 1, 0}, {2, 1}, 2, true});
    out.push_back({{1, 6, 9}, 10, {4}, {stride}, {1, 1}, {1}, 1, true});
    out.push_back({{1, 4, 3, 4, 5}, 10, {2, 3, 3}, {stride, 2, 1}, {0, 1, 1, 0, 1, 1}, {1, 1, 1}, 1, true});
  }
  return out;
}

class Conv : public ::testing::TestWithParam<const char*> {
 protected:
  std::string integer() const { return std::string("cpu.conv.u8s8.block.") + GetParam(); }
  std::string floats() const { return std::string("cpu.conv.f32.block.") + GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Isa, Conv, ::testing::Values("portable", "avx2", "avx512"));

TEST_P(Conv, Integer) {
  std::uint32_t seed = 1;
  for (const Case& c : cases()) {
    Scene s(seed++);
    set_up(s, c, true, static_cast<int>(seed % 3));
    EXPECT_SAME(s, integer(), 0);
  }
}

TEST_P(Conv, WeightZeroPoints) {
  std::uint32_t seed = 1;
  for (const bool per_channel : {false, true}) {
    for (const bool transposed : {false, true}) {
      const Case c{{1, 19, 6, 7}, 22, {3, 3}, {2, 1}, {1, 1, 1, 1}, {1, 1}, 1, transposed};
      Scene s(seed++);
      set_up(s, c, true);
      for (int o = 0; o < (per_channel ? 22 : 1); ++o) s.stage().anchor.weight_zero.push_back(s.pick(-128, 127));
      EXPECT_SAME(s, integer(), 0);
    }
  }
}

// The largest sums: every code 255 against zero point 0 and weight -128 against zero point 127.
TEST_P(Conv, Extremes) {
  const Case c{{1, 512, 4, 5}, 33, {1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}};
  Scene s(1);
  set_up(s, c, true);
  auto& a = s.stage().anchor;
  a.inputs[0].quantizer->zero_point[0] = 0;
  a.weight_zero = {127};
  std::fill(s.memory[0].begin() + 64, s.memory[0].end() - 64, std::byte{255});
  std::fill(s.memory[1].begin() + 64, s.memory[1].end() - 64, std::byte{0x80});
  for (auto& byte : s.plan().buffers[1].data.mutable_bytes()) byte = std::byte{0x80};
  EXPECT_SAME(s, integer(), 0);
}

TEST_P(Conv, PlanarInputAndSeveralStores) {
  const Case c{{1, 5, 9, 11}, 18, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}};
  Scene s(1);
  set_up(s, c, true);
  auto& st = s.stage();
  auto x = s.tensor(DType::u8, c.x, BufferKind::input);
  x.quantizer = st.anchor.inputs[0].quantizer;
  st.anchor.inputs[0] = x;
  st.program.outputs.push_back({1, DType::f32});  // the accumulator as float
  st.stores.push_back(s.tensor(DType::f32, st.space, BufferKind::output));
  EXPECT_SAME(s, integer(), 0);
}

TEST_P(Conv, ResidualReadThroughDivision) {
  const Case c{{1, 16, 6, 14}, 24, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}};
  Scene s(1);
  set_up(s, c, true);
  auto& st = s.stage();
  st.operands.push_back({s.nhwc(DType::u8, {1, 24, 3, 7}), {1, 1, 2, 2}});
  auto& p = st.program;
  p.operand_count = 3;
  p.outputs[0].value = p.push(Op::max_i, p.outputs[0].value, p.load(Op::load_i, 2));
  EXPECT_SAME(s, integer(), 0);
}

TEST_P(Conv, Float) {
  std::uint32_t seed = 1;
  for (const Case& c : cases()) {
    Scene s(seed++);
    set_up(s, c, false, static_cast<int>(seed % 3));
    EXPECT_SAME(s, floats(), 1e-4F);
  }
}

// Epilogues that the primitive takes over, and ones that it does not. Shapes that the library refuses are other kernels' work.
TEST(OneDnn, Float) {
  int ran = 0;
  std::uint32_t seed = 1;
  for (const Case& c : cases()) {
    for (const int kind : {0, 1, 2}) {
      Scene s(seed++);
      set_up(s, c, false, static_cast<int>(seed % 3));
      auto& p = s.stage().program;
      if (kind == 1) p.outputs[0].value = p.push(Op::max, p.outputs[0].value, p.imm_f(0));
      if (kind == 2) p.outputs[0].value = p.push(Op::mul, p.outputs[0].value, p.imm_f(0.5F));
      const std::string difference = s.compare(cpu::cpu_provider(), "cpu.conv.f32.onednn", 1e-4F);
      if (difference.find("does not offer") != std::string::npos && !c.transposed) GTEST_SKIP() << "this build has no oneDNN";
      if (difference.rfind("skip: ", 0) == 0) GTEST_SKIP() << difference;  // it looks at the processor, not at OCTAVO_CPU
      if (difference.rfind("refused", 0) == 0 || c.transposed) continue;
      EXPECT_EQ(difference, "") << describe(c);
      ++ran;
    }
  }
  EXPECT_GT(ran, 60);
}

/// What summing in float, in any order, can make of exact products of bfloat16: n roundings of at most the sum of magnitudes.
float sum_tolerance(Scene& s) {
  const region::Stage& st = s.stage();
  const auto& w = s.plan().buffers[static_cast<std::size_t>(st.anchor.weights->buffer)].data;
  if (st.anchor.op == ir::Op::conv_transpose) {  // at most: every weight is 0.3
    const auto n = static_cast<double>(w.size() / st.anchor.weights->dims[1]);
    return static_cast<float>((n + 2) * 0x1p-24 * 4.0 * 0.3 * n);
  }
  const std::int64_t channels = w.size() / st.space[1];
  double largest = 0, sum = 0;
  for (std::int64_t i = 0; i < w.size(); ++i) {
    sum = (i % channels == 0 ? 0 : sum) + std::abs(w.at(i));
    largest = std::max(largest, sum);
  }
  return static_cast<float>(static_cast<double>(channels + 2) * 0x1p-24 * 4.0 * largest);  // |x| <= 4
}

// Data and weights in bfloat16, sums in float; stored as float or bfloat16, by the primitive or by an epilogue.
TEST(OneDnn, Bfloat16) {
#if defined(__SANITIZE_ADDRESS__)
  setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", 1);  // its generator for tiles reads behind an array: docs/dependencies.md
#endif
  int ran = 0, transposed = 0;
  std::uint32_t seed = 1;
  for (const Case& c : cases()) {
    for (const int kind : {0, 1, 2, 3, 4, 5}) {
      Scene s(seed++);
      set_up(s, c, false, kind >= 4 ? 3 : 0, DType::bf16);  // 4 and 5: slices of wider tensors
      auto& p = s.stage().program;
      if (kind == 1 || kind == 3) p.outputs[0].value = p.push(Op::max, p.outputs[0].value, p.imm_f(0));
      if (kind == 2) p.outputs[0].value = p.push(Op::mul, p.outputs[0].value, p.imm_f(0.5F));
      if (kind == 3 || kind == 4) p.outputs[0].value = p.push(Op::to_bf16, p.outputs[0].value);  // as plans have it
      if (kind >= 2 && kind != 5) {
        p.outputs[0].type = DType::bf16;
        s.stage().stores = {s.nhwc(DType::bf16, s.stage().space, BufferKind::arena, kind == 4 ? 3 : 0)};
      }
      const float tolerance = sum_tolerance(s);
      const std::string difference =
          s.compare(cpu::cpu_provider(), c.transposed ? "cpu.conv_transpose.bf16.onednn" : "cpu.conv.bf16.onednn", tolerance);
      if (difference.find("does not offer") != std::string::npos) GTEST_SKIP() << "this build has no oneDNN";
      if (difference.find("needs AVX512-BF16") != std::string::npos || difference.find("OCTAVO_CPU") != std::string::npos ||
          difference.rfind("skip: ", 0) == 0)
        GTEST_SKIP() << difference;
      if (difference.rfind("refused", 0) == 0) continue;
      EXPECT_EQ(difference, "") << describe(c) << " kind " << kind << " tolerance " << tolerance;
      ++ran;
      transposed += c.transposed;
    }
  }
  EXPECT_GT(ran, 200);
  EXPECT_GT(transposed, 30);
}

// No slow stand-in for it, and nothing offers it for float data.
TEST(OneDnn, Bfloat16IsRefusedByEverythingElse) {
  const Case c{{1, 8, 5, 5}, 8, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}};
  Scene small(1), plain(2), mixed(3);
  set_up(small, c, false, 0, DType::bf16);
  set_up(plain, c, false);
  set_up(mixed, c, false, 0, DType::bf16);
  mixed.stage().anchor.inputs = {mixed.nhwc(DType::f32, c.x)};
  int refused = 0;
  for (const region::Offer& o : cpu::cpu_provider().offers(small.region(), small.plan())) {
    if (o.tactic.family.find(".bf16.") != std::string::npos) continue;
    EXPECT_FALSE(o.refusal.empty()) << o.tactic.name();
    ++refused;
  }
  EXPECT_GE(refused, 2);
  for (const region::Offer& o : cpu::cpu_provider().offers(plain.region(), plain.plan()))
    EXPECT_EQ(o.tactic.name().find("bf16"), std::string::npos);
  for (const region::Offer& o : cpu::cpu_provider().offers(mixed.region(), mixed.plan()))
    EXPECT_FALSE(o.refusal.empty()) << o.tactic.name();
}

TEST_P(Conv, RandomShapes) {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    Scene s(seed);
    Case c;
    c.group = s.pick(1, 3);
    c.x = {s.pick(1, 2), c.group * s.pick(1, 20), s.pick(1, 12), s.pick(1, 30)};
    c.out = c.group * s.pick(1, 40);
    c.transposed = s.pick(0, 2) == 0;
    for (int d = 0; d < 2; ++d) {
      c.kernel.push_back(s.pick(1, 4));
      c.strides.push_back(s.pick(1, 3));
      c.dilations.push_back(s.pick(1, 2));
    }
    for (int d = 0; d < 4; ++d) {
      const auto k = static_cast<std::size_t>(d % 2);
      const std::int64_t window = (c.kernel[k] - 1) * c.dilations[k] + 1;
      c.pads.push_back(c.transposed ? 0 : std::max<std::int64_t>(s.pick(0, static_cast<int>(window) - 1), window - c.x[2 + k]));
    }
    set_up(s, c, true, s.pick(0, 3));
    EXPECT_SAME(s, integer(), 0);
  }
}

}  // namespace
}  // namespace octavo::testing
