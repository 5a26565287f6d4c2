// Attention on bfloat16 in tiles of queries, by name on each level, against its three operators one after the other by their own tactics (bit for bit)
// and against the reference, over shapes around the tiles: 16, 32 and 64 queries, 12 and 16 rows of a product, 32 elements of a tile's depth.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "cpu/float_attention_scene.h"
#include "cpu/provider.h"

namespace octavo::testing {
namespace {

using namespace float_attention;

class AttentionBf16 : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string tactic() { return std::string("cpu.attention.bf16.queries.") + GetParam(); }
  /// The same bits as the three apart.
  static std::string apart(Scene& s) {
    const std::string product = std::string("cpu.matmul.bf16.rows.") + GetParam();
    s.apart = {product, "cpu.softmax.block.avx512", product};
    return s.compare(cpu::cpu_provider(), tactic());
  }
  /// A score in another order of its sum may round a probability to the next bfloat16.
  static std::string by_reference(Scene& s) {
    s.apart.clear();
    return s.compare(cpu::cpu_provider(), tactic(), 5e-3F);
  }
};
INSTANTIATE_TEST_SUITE_P(Level, AttentionBf16, ::testing::Values("avx512bf16", "amx"));

TEST_P(AttentionBf16, EveryTileAndRemainder) {
  std::uint32_t seed = 1;
  for (const std::int64_t queries : {1, 15, 16, 17, 33, 65, 197}) {
    for (const std::int64_t keys : {1, 12, 15, 16, 17, 197}) {
      for (const std::int64_t features : {1, 31, 32, 33, 64}) {
        const std::int64_t columns = std::array{16, 17, 64, 15, 1}[seed % 5];
        Scene s(seed++);
        set(s, DType::bf16, {1, 2, queries, keys, features, columns},
            {seed % 2 == 0 ? 8.0F : 0.3F, seed % 4 < 2, Programs::none, false, false, seed % 3 == 0, seed % 2 == 0}, seed % 3 != 0);
        EXPECT_RUNS(apart(s));
        if (seed % 4 == 0) EXPECT_RUNS(by_reference(s));
      }
    }
  }
}

TEST_P(AttentionBf16, ProgramsRunWhereTheyRan) {
  std::uint32_t seed = 300;
  for (const auto mask : {Programs::none, Programs::keys, Programs::whole}) {
    for (const bool scaled : {false, true}) {
      for (const float scale : {1.0F, 0.125F, 0.3F, -8.0F}) {
        for (const std::int64_t queries : {5, 16, 37}) {
          Scene s(seed++);
          set(s, DType::bf16, {2, 2, queries, 41, 24, 32},
              {scale, scale != 1 && seed % 2 == 0, mask, false, scaled, seed % 3 == 0, seed % 4 == 1}, true, 1.0F);
          EXPECT_RUNS(apart(s));
          EXPECT_RUNS(by_reference(s));
        }
      }
    }
  }
}

TEST_P(AttentionBf16, TilesOfOtherSizes) {
  std::uint32_t seed = 400;
  for (const char* rows : {"16", "32", "48", "64"}) {
    for (const std::int64_t queries : {31, 64, 65, 130}) {
      Scene s(seed++);
      set(s, DType::bf16, {1, 2, queries, 50, 16, 80}, {0.125F, false, seed % 2 == 0 ? Programs::whole : Programs::none}, true);
      s.parameters["rows"] = rows;
      EXPECT_RUNS(apart(s));
    }
  }
}

/// Keys that a mask forbids, rows where it forbids all, what is no number, and scores so far apart that probabilities are 0.
TEST_P(AttentionBf16, Extremes) {
  std::uint32_t seed = 500;
  for (const std::int64_t queries : {16, 19}) {
    for (const int kind : {0, 1, 2, 3, 4, 5}) {
      for (const std::int64_t keys : {39, 40}) {
        Scene s(seed++);
        const Sizes n{1, 2, queries, keys, 9, 16};
        set(s, DType::bf16, n, {0.125F, false, Programs::whole}, true, kind == 4 ? 3e18F : kind == 5 ? 40.0F : 2.0F);
        put_extremes(s, n, kind);
        EXPECT_RUNS(apart(s));
      }
    }
  }
}

/// Probabilities of 1 / keys, and of small numbers of equal scores: many are ties of bfloat16 or close to one.
TEST_P(AttentionBf16, TiesOfProbabilities) {
  std::uint32_t seed = 600;
  for (const std::int64_t keys : {1, 2, 3, 5, 7, 10, 34, 102, 129, 170, 255, 256, 257, 258, 514, 771}) {
    Scene s(seed++);
    set(s, DType::bf16, {1, 1, 18, keys, 4, 16}, {0.125F}, false);
    const region::TensorRef& k = s.region().stages[0].anchor.inputs[1];
    for (std::int64_t i = 0; i < ir::count(k.dims); ++i) put(s, k, i, 0.25F);
    EXPECT_RUNS(apart(s));
  }
}

/// What it is not made for is refused with the reason.
TEST_P(AttentionBf16, Refusals) {
  const auto refused = [&](auto change) {
    Scene s(7);
    set(s, DType::bf16, {1, 2, 20, 24, 8, 16}, {0.125F}, false);
    change(s);
    return s.compare(cpu::cpu_provider(), tactic());
  };
  if (refused([](Scene&) {}).rfind("skip: ", 0) == 0) GTEST_SKIP() << "needs " << GetParam();
  EXPECT_NE(refused([](Scene& s) { s.region().stages[1].anchor.as<ir::Along>().axis = 2; }).find("axis of softmax"),
            std::string::npos);
  EXPECT_NE(refused([](Scene& s) {
              s.region().stages[2].anchor.inputs[1] = s.tensor(DType::f32, {1, 2, 24, 16});
            }).find("type of a matrix"),
            std::string::npos);
  EXPECT_NE(refused([](Scene& s) {
              set(s, DType::bf16, {1, 1, 2, 20000, 1, 1}, {0.125F}, false);
            }).find("which scratch holds"),
            std::string::npos);
}

}  // namespace
}  // namespace octavo::testing
