// Generated depthwise convolutions against brute force, by vpdpbusd and by pairs of 16 bits (AVX2).
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "cpu/cap.h"
#include "cpu/depthwise_scene.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;

/// Parametrized by the part of the family's name that says how.
class GeneratedDepthwise : public ::testing::TestWithParam<std::string_view> {
 protected:
  static bool pairs() { return GetParam() == "avx2"; }
  static std::string tactic() { return fmt::format("cpu.depthwise.u8s8.{}.jit", GetParam()); }
  void SetUp() override {
    if (pairs()) cap_.emplace(cpu::Isa::avx2);  // offered where vpdpbusd is not
  }

 private:
  std::optional<cpu::CapScope> cap_;
};
INSTANTIATE_TEST_SUITE_P(By, GeneratedDepthwise, ::testing::Values("avx512vnni", "avx2"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(GeneratedDepthwise, ChannelAndColumnTails) {
  std::uint32_t seed = 1;
  for (const std::int64_t c : {2, 3, 15, 16, 17, 31, 32, 33, 48, 49, 63, 64, 65, 129, 144}) {
    for (const std::int64_t w : {1, 2, 3, 4, 7, 13}) {
      for (const std::int64_t h : {1, 2, 3}) {
        Depthwise k;
        k.c = c, k.w = w, k.h = h, k.gap = static_cast<int>(seed % 2) * 5;
        Scene s(seed++);
        build(s, k);
        EXPECT_RUNS(run(s, k, tactic()));
      }
    }
  }
}

TEST_P(GeneratedDepthwise, KernelsStridesDilationsPads) {
  for (std::uint32_t seed = 1; seed <= rounds(100, 300); ++seed) {
    Scene s(seed);
    Depthwise k;
    k.n = s.pick(1, 2), k.c = s.pick(2, 90), k.h = s.pick(1, 14), k.w = s.pick(1, 16);
    k.kernel = {s.pick(1, 7), s.pick(1, 7)};
    k.strides = {s.pick(1, 3), s.pick(1, 3)};
    k.dilations = {s.pick(1, 2), s.pick(1, 2)};
    k.pads = {s.pick(0, 4), s.pick(0, 4), s.pick(0, 4), s.pick(0, 4)};
    const int zeros[] = {0, 128, 255, 7};
    k.zero = zeros[s.pick(0, 3)];
    k.gap = s.pick(0, 1) * 3;
    k.threads = s.pick(1, 4);
    if (out_size(k, 0) < 1 || out_size(k, 1) < 1) continue;
    build(s, k, s.pick(0, 2) == 0 ? BufferKind::input : BufferKind::arena);
    if (s.pick(0, 2) == 0) {  // a residual, and a second store in f32
      auto& st = s.stage();
      auto& p = st.program;
      st.operands.push_back({s.nhwc(DType::u8, st.space), {}});
      p.operand_count = 3;
      const int r = p.push(Op::i2f, p.load(Op::load_i, 2));
      const int v = p.push(Op::add, p.push(Op::mul, r, p.imm_f(0.1F)), p.push(Op::i2f, p.push(Op::acc_i)));
      p.outputs.push_back({v, DType::f32});
      st.stores.push_back(s.nhwc(DType::f32, st.space));
    }
    EXPECT_RUNS(run(s, k, tactic()));
  }
}

/// Weights minus zero points need nine bits: two halves of each are multiplied with what is in a register.
TEST_P(GeneratedDepthwise, WeightZeroPoints) {
  for (std::uint32_t seed = 1; seed <= rounds(60, 120); ++seed) {
    Scene s(seed);
    Depthwise k;
    k.n = s.pick(1, 2), k.c = s.pick(2, 90), k.h = s.pick(1, 12), k.w = s.pick(1, 30);
    k.kernel = {s.pick(1, 5), s.pick(1, 5)};
    k.strides = {s.pick(1, 2), s.pick(1, 2)};
    const int zeros[] = {0, 128, 255, 7};
    k.zero = zeros[s.pick(0, 3)];
    k.threads = s.pick(1, 3);
    if (out_size(k, 0) < 1 || out_size(k, 1) < 1) continue;
    build(s, k);
    auto& zero = s.stage().anchor.weight_zero;
    const std::int64_t entries = s.pick(0, 1) == 0 ? 1 : k.c;
    for (std::int64_t c = 0; c < entries; ++c) zero.push_back(s.pick(-127, 127));
    if (std::all_of(zero.begin(), zero.end(), [](int z) { return z == 0; })) zero[0] = 127;
    EXPECT_RUNS(run(s, k, tactic()));
  }
}

TEST_P(GeneratedDepthwise, WideRowsRunInStrips) {
  std::uint32_t seed = 1;
  for (const std::int64_t w : {95, 96, 97, 193, 300}) {
    for (const std::int64_t stride : {1, 2}) {
      Depthwise k;
      k.c = 40, k.w = w, k.h = 5, k.strides = {stride, stride};
      Scene s(seed++);
      build(s, k);
      EXPECT_RUNS(run(s, k, tactic()));
    }
  }
}

TEST_P(GeneratedDepthwise, SecondRoundings) {
  for (std::uint32_t seed = 1; seed <= rounds(60, 160); ++seed) {
    Scene s(seed);
    Depthwise k;
    k.c = s.pick(2, 140), k.h = s.pick(2, 9), k.w = s.pick(2, 9);
    k.kernel = {s.pick(1, 5), s.pick(1, 5)};
    k.scale = s.pick(0, 2) == 0 ? -2e-3F : 2e-3F;
    if (out_size(k, 0) < 1 || out_size(k, 1) < 1) continue;
    build(s, k);
    round_again(s, static_cast<int>(seed % 4), s.pick(0, 1) == 0, s.pick(0, 1) == 0 ? DType::u8 : DType::s8);
    if (s.pick(0, 2) == 0) {  // a third rounding of something else: the outputs do not share what is packed
      auto& p = s.stage().program;
      const int x = p.push(Op::mul, p.push(Op::i2f, p.push(Op::acc_i)), p.imm_f(0.01F));
      p.outputs.push_back({p.push(Op::f2i, p.push(Op::min, p.push(Op::max, x, p.imm_f(-90)), p.imm_f(90))), DType::s8});
      s.stage().stores.push_back(s.nhwc(DType::s8, s.stage().space));
    }
    EXPECT_RUNS(run(s, k, tactic()));
  }
}

TEST_P(GeneratedDepthwise, RefusesOtherGroupings) {
  Depthwise k;
  Scene s(1);
  build(s, k);
  s.stage().anchor.as<ir::Window>().group = 32;
  s.stage().anchor.weights = s.tensor(DType::s8, {64, 2, 3, 3}, BufferKind::constant);
  const auto offers = cpu::cpu_provider().offers(s.region(), s.plan());
  const auto refusal = [&](std::string_view family) -> Reasons {
    for (const auto& offer : offers) {
      if (offer.tactic.family == family) return offer.refusal;
    }
    return region::unmet("offers", 0, "1");
  };
  const std::string conv = fmt::format("conv.u8s8.{}.jit", GetParam()), depthwise = tactic().substr(4);
  if (cpu::lacks_capability(refusal(depthwise))) GTEST_SKIP() << cpu::in_words(refusal(depthwise));
  EXPECT_EQ(spelled(refusal(conv)), "");
  EXPECT_EQ(refusal(depthwise), region::unmet("channels a group", "2 to 2", "1 to 1"));
  if (pairs()) return;
  EXPECT_EQ(refusal("depthwise.u8s8.avx512vnni.sliding_window"), region::unmet("channels a group", "2 to 2", "1 to 1"));
}

}  // namespace
}  // namespace octavo::testing
