// Depthwise convolutions whose window stays in registers, against brute force.
#include <gtest/gtest.h>

#include "base/causes/kernels.h"
#include "cpu/depthwise_scene.h"
#include "support/fuzz_setting.h"

namespace octavo::testing {
namespace {

using ir::DType;
using program::Op;
using region::BufferKind;

constexpr std::string_view kTactic = "cpu.depthwise.u8s8.avx512vnni.sliding_window";

/// How many of the blocks are requantized by one fma: of all.
std::pair<int, int> lines(Scene& s) {
  const auto made = cpu::cpu_provider().compile(s.region(), s.plan(), s.region().tactic);
  EXPECT_TRUE(made && made->constants.size() == 3);
  const auto c = s.stage().space[1];
  const auto flags = made->constants[2].data<std::int32_t>();
  std::pair<int, int> n{0, 0};
  for (std::int64_t first = 0; first < c; first += 64, ++n.second) n.first += flags[static_cast<std::size_t>(first / 16)];
  return n;
}

TEST(Avx512SlidingWindow, ChannelAndColumnTails) {
  std::uint32_t seed = 1;
  for (const std::int64_t c : {2, 15, 16, 17, 31, 32, 33, 48, 49, 63, 64, 65, 129, 144}) {
    for (const std::int64_t w : {1, 2, 3, 4, 5, 6, 7, 13}) {
      for (const std::int64_t h : {1, 2, 3, 4, 5}) {
        Depthwise k;
        k.c = c, k.w = w, k.h = h, k.gap = static_cast<int>(seed % 2) * 5;
        k.strides = {1 + seed % 3 / 2, 1 + seed % 3 / 2};
        if (k.strides[0] == 2) k.pads = {1, 1, 1, 1};
        Scene s(seed++);
        build(s, k);
        EXPECT_RUNS(run(s, k, kTactic));
      }
    }
  }
}

TEST(Avx512SlidingWindow, StridesPadsZeroPointsStores) {
  int by_line = 0, blocks = 0, runs = 0;
  for (std::uint32_t seed = 1; seed <= rounds(200, 600); ++seed) {
    Scene s(seed);
    Depthwise k;
    k.n = s.pick(1, 2), k.c = s.pick(2, 150), k.h = s.pick(1, 14), k.w = s.pick(1, 19);
    k.strides[0] = k.strides[1] = s.pick(1, 2);
    k.pads = {s.pick(0, 4), s.pick(0, static_cast<int>(3 - k.strides[0])), s.pick(0, 4), s.pick(0, 5)};
    const int zeros[] = {0, 128, 255, 7};
    k.zero = zeros[s.pick(0, 3)];
    k.gap = s.pick(0, 1) * 3;
    k.threads = s.pick(1, 4);
    k.out = s.pick(0, 1) == 0 ? DType::u8 : DType::s8;
    k.scale = s.pick(0, 3) == 0 ? -2e-3F : s.pick(0, 3) == 0 ? 0.3F : 2e-3F;
    if (out_size(k, 0) < 1 || out_size(k, 1) < 1) continue;
    build(s, k, s.pick(0, 2) == 0 ? BufferKind::input : BufferKind::arena);
    auto& st = s.stage();
    if (s.pick(0, 2) == 0) {  // a table of the codes, and the codes again
      auto& p = st.program;
      auto& table = p.tables.emplace_back();
      for (auto& byte : table) byte = static_cast<std::uint8_t>(s.rng()());
      if (k.out == DType::u8) {
        p.outputs.push_back({p.push_imm(Op::table, 0, p.outputs[0].value), DType::u8});
        st.stores.push_back(s.nhwc(DType::u8, st.space, BufferKind::arena, 7));
      }
      if (s.pick(0, 1) == 0) {
        p.outputs.push_back(p.outputs[0]);
        st.stores.push_back(s.nhwc(k.out, st.space));
      }
    }
    EXPECT_RUNS(run(s, k, kTactic));
    const auto [some, all] = lines(s);
    if (k.scale < 0) {
      ASSERT_EQ(some, 0) << "seed " << seed;
    }
    by_line += some, blocks += all, ++runs;
  }
  std::printf("%d of %d blocks by one fma, %d convolutions\n", by_line, blocks, runs);
  EXPECT_GT(by_line, blocks / 3);
  EXPECT_GT(blocks - by_line, blocks / 8);
}

TEST(Avx512SlidingWindow, SecondRoundingsAreTables) {
  for (std::uint32_t seed = 1; seed <= rounds(60, 160); ++seed) {
    Scene s(seed);
    Depthwise k;
    k.c = s.pick(2, 140), k.h = s.pick(2, 9), k.w = s.pick(2, 9);
    k.strides[0] = k.strides[1] = s.pick(1, 2);
    k.scale = s.pick(0, 2) == 0 ? -2e-3F : 2e-3F;
    build(s, k);
    round_again(s, static_cast<int>(seed % 4), s.pick(0, 1) == 0, s.pick(0, 1) == 0 ? DType::u8 : DType::s8);
    EXPECT_RUNS(run(s, k, kTactic));  // refused unless all outputs are the code or tables of it
  }
}

/// By one fma and the larger of two, and as written where a scale is negative; factors that are no leaky relu's are refused.
TEST(Avx512SlidingWindow, LeakyRelu) {
  int by_line = 0, blocks = 0;
  for (std::uint32_t seed = 1; seed <= rounds(60, 160); ++seed) {
    for (const std::string_view tactic : {kTactic, std::string_view("cpu.conv.u8s8.avx512vnni.jit")}) {
      Scene s(seed);
      Depthwise k;
      k.c = s.pick(2, 140), k.h = s.pick(2, 9), k.w = s.pick(2, 9);
      k.strides[0] = k.strides[1] = s.pick(1, 2);
      k.scale = s.pick(0, 3) == 0 ? -2e-3F : 2e-3F;
      const bool again = s.pick(0, 3) == 0;
      k.out = again || s.pick(0, 1) == 0 ? DType::u8 : DType::s8;
      build(s, k);
      const float alphas[] = {0.1F, 0.01F, 0.3F, 1.0F - 0x1p-24F, 0x1p-30F};
      leak(s, alphas[s.pick(0, 4)]);
      if (again) round_again(s, static_cast<int>(seed % 4), s.pick(0, 1) == 0, DType::u8);
      EXPECT_RUNS(run(s, k, tactic));
      if (tactic != kTactic) continue;
      const auto [some, all] = lines(s);
      by_line += some, blocks += all;
    }
  }
  std::printf("%d of %d blocks by one fma\n", by_line, blocks);
  EXPECT_GT(by_line, blocks / 3);
  for (const float alpha : {-0.1F, 0.0F, 1.0F, 1.5F}) {
    Scene s(1);
    Depthwise k;
    build(s, k);
    leak(s, alpha);
    const std::string why = run(s, k, kTactic);
    if (why.rfind("skip: ", 0) == 0) GTEST_SKIP() << why;
    EXPECT_NE(why.find("LeakyRelu"), std::string::npos) << why;
    EXPECT_RUNS(run(s, k, "cpu.conv.u8s8.avx512vnni.jit"));  // as written
  }
}

/// It is part of what the sums begin at, by one fma and as written.
TEST(Avx512SlidingWindow, IntegerBias) {
  int by_line = 0, blocks = 0;
  for (std::uint32_t seed = 1; seed <= rounds(50, 120); ++seed) {
    Scene s(seed);
    Depthwise k;
    k.c = s.pick(2, 140), k.h = s.pick(2, 9), k.w = s.pick(2, 9);
    k.strides[0] = k.strides[1] = s.pick(1, 2);
    k.scale = s.pick(0, 3) == 0 ? -2e-3F : 2e-3F;
    build(s, k);
    add_integer_bias(s, seed % 8 == 0 ? 2'000'000'000 : 20'000);  // the larger ones let sums wrap
    EXPECT_RUNS(run(s, k, kTactic));
    const auto [some, all] = lines(s);
    by_line += some, blocks += all;
  }
  std::printf("%d of %d blocks by one fma\n", by_line, blocks);
  EXPECT_GT(by_line, blocks / 3);
}

TEST(Avx512SlidingWindow, RowsSharedByThreads) {
  std::uint32_t seed = 1;
  for (const int threads : {2, 5, 16}) {
    for (const std::int64_t h : {7, 15, 31}) {  // 31: several row tiles
      for (const std::int64_t stride : {1, 2}) {
        Depthwise k;
        k.n = 1 + seed % 2, k.c = 450, k.h = h, k.w = h == 31 ? 40 : 24, k.threads = threads, k.strides = {stride, stride};
        for (const std::string_view tactic : {kTactic, std::string_view("cpu.depthwise.u8s8.avx512vnni.jit")}) {
          Scene s(seed++);
          build(s, k);
          EXPECT_RUNS(run(s, k, tactic));
        }
      }
    }
  }
}

TEST(Avx512SlidingWindow, Extremes) {
  for (const int x : {0, 127, 128, 255}) {
    for (const int w : {-128, -127, 0, 127}) {
      Depthwise k;
      k.c = 80, k.zero = 255 - x, k.scale = 3e-4F;
      Scene s(9);
      build(s, k);
      auto fill = [&](const region::TensorRef& ref, int value) {
        auto& bytes = s.memory[static_cast<std::size_t>(ref.buffer)];
        std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(value));
        auto& data = s.plan().buffers[static_cast<std::size_t>(ref.buffer)].data;
        if (!data.empty()) std::fill_n(data.mutable_data<std::int8_t>().begin(), data.size(), static_cast<std::int8_t>(value));
      };
      fill(s.stage().anchor.inputs[0], x);
      fill(*s.stage().anchor.weights, w);
      EXPECT_RUNS(run(s, k, kTactic));
    }
  }
}

TEST(Avx512SlidingWindow, Refusals) {
  struct Case {
    Reasons why;
    Depthwise k;
  };
  std::vector<Case> cases(5);
  cases[0].why = region::unmet("kernel", "5x3", "3x3"), cases[0].k.kernel = {5, 3};
  cases[1].why = region::unmet("dilations", "1x2", "1x1"), cases[1].k.dilations = {1, 2};
  cases[2].why = region::unmet("strides", "2x1", "1x1 or 2x2"), cases[2].k.strides = {2, 1};
  cases[3].why = region::unmet("columns of padding", 2, "at most 1"), cases[3].k.strides = {2, 2}, cases[3].k.pads = {1, 2, 1, 1};
  cases[4].why = region::unmet("output 1", "of its own", "the packed value or a table of it");
  cases[4].why.insert(cases[4].why.begin(), because<cause::epilogue_not_requantize>());
  for (auto& [why, k] : cases) {
    Scene s(1);
    build(s, k);
    if (why.size() == 2) {
      auto& p = s.stage().program;
      p.outputs.push_back({p.push(Op::i2f, p.push(Op::acc_i)), DType::f32});
      s.stage().stores.push_back(s.nhwc(DType::f32, s.stage().space));
    }
    const auto offers = cpu::cpu_provider().offers(s.region(), s.plan());
    const auto offer = std::find_if(offers.begin(), offers.end(), [](const auto& o) { return o.tactic.name() == kTactic; });
    ASSERT_NE(offer, offers.end());
    if (cpu::lacks_capability(offer->refusal)) GTEST_SKIP() << cpu::in_words(offer->refusal);
    EXPECT_EQ(offer->refusal, why);
  }
}

}  // namespace
}  // namespace octavo::testing
