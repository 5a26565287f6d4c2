// Attention on 8-bit codes in tiles of queries, by name on each level, against its three operators one after the other by their own tactics: bit for bit, over
// shapes around the tiles (16, 32 and 64 queries, 16 rows and 64 codes of an AMX tile), zero points, ties of both roundings, and every form of program.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "cpu/attention_scene.h"
#include "cpu/provider.h"

namespace octavo::testing {
namespace {

using namespace attention;

class AttentionCodes : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string tactic() { return std::string("cpu.attention.u8u8.queries.") + GetParam(); }
  static std::string apart(Scene& s) {
    const std::string isa = GetParam(), product = "cpu.matmul.u8u8.rows." + isa;
    const std::string block = isa == "amx" || isa == "avx512vnni" ? "avx512" : isa;
    s.apart = {product, "cpu.softmax.block." + block, product};
    return s.compare(cpu::cpu_provider(), tactic());
  }
};
INSTANTIATE_TEST_SUITE_P(Isa, AttentionCodes, ::testing::Values("portable", "avx2", "avx512vnni", "amx"));

void fill(Scene& s, const region::TensorRef& t, int code) {
  std::memset(s.memory[static_cast<std::size_t>(t.buffer)].data() + 64, code, static_cast<std::size_t>(ir::count(t.dims)));
}

TEST_P(AttentionCodes, EveryTileAndRemainder) {
  std::uint32_t seed = 1;
  for (const std::int64_t queries : {1, 15, 16, 17, 33, 65}) {
    for (const std::int64_t keys : {1, 5, 16, 17, 66}) {
      for (const std::int64_t features : {1, 8, 19, 64, 65}) {
        const std::int64_t columns = std::array{16, 17, 64, 15, 1}[seed % 5];
        Scene s(seed++);
        Forms forms;
        forms.unit = 0.01F / static_cast<float>(features);
        forms.step = seed % 2 == 0 ? 0.05F : 0;
        forms.after = seed % 3 == 0 ? Forms::quotient : Forms::nothing;
        forms.by = seed % 4 == 0 ? 8.0F : 5.6568542F;
        set(s, {2, 3, queries, keys, features, columns}, forms, seed % 3 != 0);
        EXPECT_RUNS(apart(s));
      }
    }
  }
}

TEST_P(AttentionCodes, EveryForm) {
  std::uint32_t seed = 200;
  for (const float step : {0.0F, 0.03F, 0.0625F}) {
    for (const auto after : {Forms::nothing, Forms::product, Forms::quotient}) {
      for (const float by : {8.0F, 0.17677669F, -3.0F}) {
        for (const int more : {0, 1, 2}) {
          for (const float probability : {1.0F / 255, 0.00046258303F, 0.0078125F}) {
            Scene s(seed++);
            Forms forms;
            forms.unit = seed % 2 == 0 ? 0.0004F : step / 2;  // the second: every other sum is a tie
            if (forms.unit == 0) forms.unit = 0.0004F;
            forms.step = step, forms.after = after, forms.by = by;
            forms.mask = more == 1, forms.scaled = more == 2, forms.probability = probability;
            set(s, {1, 2, 21, 40, 24, 18}, forms, true);
            EXPECT_RUNS(apart(s));
          }
        }
      }
    }
  }
}

TEST_P(AttentionCodes, ZeroPoints) {
  std::uint32_t seed = 400;
  for (const auto& zero : {std::array{0, 255, 0, 255}, {255, 0, 255, 0}, {128, 3, 0, 128}, {7, 128, 1, 250}}) {
    for (const std::int64_t queries : {16, 19}) {
      Scene s(seed++);
      Forms forms;
      forms.unit = 0.0001F;
      forms.zero = zero;
      set(s, {2, 2, queries, 70, 33, 20}, forms, seed % 2 == 0);
      EXPECT_RUNS(apart(s));
    }
  }
}

/// All keys alike: probabilities of 1 / keys, which are ties of codes for two, and none but one key.
TEST_P(AttentionCodes, TiesOfProbabilities) {
  std::uint32_t seed = 500;
  for (const std::int64_t keys : {1, 2, 3, 4, 6, 10, 34, 102, 170}) {
    for (const float probability : {1.0F / 255, 1.0F / 127, 2.0F / 255, 1e-30F, 1e30F}) {
      Scene s(seed++);
      Forms forms;
      forms.probability = probability;
      forms.zero[2] = seed % 2 == 0 ? 0 : 128;
      set(s, {1, 1, 18, keys, 16, 16}, forms, false);
      fill(s, s.region().stages[0].anchor.inputs[1], 128);
      EXPECT_RUNS(apart(s));
    }
  }
}

TEST_P(AttentionCodes, TilesOfOtherSizes) {
  std::uint32_t seed = 600;
  for (const char* rows : {"16", "32", "48", "64"}) {
    for (const std::int64_t queries : {31, 64, 65, 130}) {
      Scene s(seed++);
      set(s, {1, 2, queries, 50, 16, 80}, {0.0003F}, true);
      s.parameters["rows"] = rows;
      EXPECT_RUNS(apart(s));
    }
  }
}

/// What it is not made for is refused with the reason.
TEST_P(AttentionCodes, Refusals) {
  const auto refused = [&](auto change) {
    Scene s(7);
    set(s, {1, 2, 20, 24, 8, 16}, {}, false);
    change(s);
    return s.compare(cpu::cpu_provider(), tactic());
  };
  if (refused([](Scene&) {}).rfind("skip: ", 0) == 0) GTEST_SKIP() << "needs " << GetParam();
  EXPECT_NE(refused([](Scene& s) { s.region().stages[1].anchor.as<ir::Along>().axis = 2; }).find("axis of softmax"),
            std::string::npos);
  EXPECT_NE(refused([](Scene& s) { s.region().stages[0].anchor.inputs[0].quantizer.reset(); }).find("u8 codes with one scale"),
            std::string::npos);
  EXPECT_NE(refused([](Scene& s) { s.region().stages[0].anchor.integer = false; }).find("the probabilities are codes too"),
            std::string::npos);
}

}  // namespace
}  // namespace octavo::testing
