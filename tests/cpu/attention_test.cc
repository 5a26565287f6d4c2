// Attention in tiles of queries, against its three operators one after the other by their own tactics (bit for bit) and against the
// reference (within the tolerance of float sums), over shapes around the tiles: 16, 32 and 64 queries, 6 rows of a product, 16 columns of a panel.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "cpu/float_attention_scene.h"
#include "cpu/provider.h"

namespace octavo::testing {
namespace {

using namespace float_attention;

class Attention : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string tactic() { return std::string("cpu.attention.f32.queries.") + GetParam(); }
  /// The same bits as the three apart.
  static std::string apart(Scene& s) {
    const std::string isa = GetParam(), product = "cpu.matmul.f32.rows." + isa + "@2";
    s.apart = {product, "cpu.softmax.block." + isa, product};
    return s.compare(cpu::cpu_provider(), tactic());
  }
  static std::string by_reference(Scene& s) {
    s.apart.clear();
    return s.compare(cpu::cpu_provider(), tactic(), 1e-4F);
  }
};
INSTANTIATE_TEST_SUITE_P(Isa, Attention, ::testing::Values("portable", "avx2", "avx512"));

TEST_P(Attention, EveryTileAndRemainder) {
  std::uint32_t seed = 1;
  for (const std::int64_t queries : {1, 15, 16, 17, 33, 65}) {
    for (const std::int64_t keys : {1, 5, 6, 7, 40}) {
      for (const std::int64_t features : {1, 8, 19}) {
        const std::int64_t columns = std::array{16, 17, 64, 15, 1}[seed % 5];
        Scene s(seed++);
        set(s, DType::f32, {2, 3, queries, keys, features, columns}, {seed % 2 == 0 ? 8.0F : 0.3F, seed % 4 < 2}, seed % 3 != 0);
        EXPECT_RUNS(apart(s));
        if (seed % 4 == 0) EXPECT_RUNS(by_reference(s));
      }
    }
  }
}

TEST_P(Attention, ProgramsRunWhereTheyRan) {
  std::uint32_t seed = 100;
  for (const auto mask : {Programs::none, Programs::keys, Programs::whole}) {
    for (const bool rounds : {false, true}) {
      for (const float scale : {1.0F, 0.125F, 0.3F, -8.0F}) {
        for (const std::int64_t queries : {5, 16, 37}) {
          Scene s(seed++);
          set(s, DType::f32, {2, 2, queries, 41, 24, 32}, {scale, seed % 2 == 0, mask, rounds}, true);
          EXPECT_RUNS(apart(s));
          EXPECT_RUNS(by_reference(s));
        }
      }
    }
  }
}

TEST_P(Attention, TilesOfOtherSizes) {
  std::uint32_t seed = 200;
  for (const char* rows : {"16", "32", "48", "64"}) {
    for (const std::int64_t queries : {31, 64, 65, 130}) {
      Scene s(seed++);
      set(s, DType::f32, {1, 2, queries, 50, 16, 80}, {2.0F, true, seed % 2 == 0 ? Programs::whole : Programs::none, false}, true);
      s.parameters["rows"] = rows;
      EXPECT_RUNS(apart(s));
    }
  }
}

/// Keys that a mask forbids, rows where it forbids all, and what is no number, as the three operators treat them.
TEST_P(Attention, Extremes) {
  std::uint32_t seed = 300;
  for (const std::int64_t queries : {16, 19}) {
    for (const int kind : {0, 1, 2, 3, 4}) {
      Scene s(seed++);
      const Sizes n{1, 2, queries, 40, 8, 16};
      set(s, DType::f32, n, {0.125F, false, Programs::whole, false}, true, kind == 4 ? 3e19F : 2.0F);
      put_extremes(s, n, kind);
      EXPECT_RUNS(apart(s));
    }
  }
}

/// What it is not made for is refused with the reason.
TEST_P(Attention, Refusals) {
  const auto refused = [&](auto change) {
    Scene s(7);
    set(s, DType::f32, {1, 2, 20, 24, 8, 16}, {}, false);
    change(s);
    return s.compare(cpu::cpu_provider(), tactic());
  };
  if (refused([](Scene&) {}).rfind("skip: ", 0) == 0) GTEST_SKIP() << "needs " << GetParam();
  EXPECT_EQ(refused([](Scene&) {}), "");
  EXPECT_NE(refused([](Scene& s) { s.region().stages[1].anchor.as<ir::Along>().axis = 2; }).find("axis of softmax"),
            std::string::npos);
  EXPECT_NE(refused([](Scene& s) {
              s.region().stages[2].anchor.inputs[0] = s.tensor(DType::f32, {1, 2, 20, 24});
            }).find("read within"),
            std::string::npos);
  EXPECT_NE(refused([](Scene& s) {
              set(s, DType::f32, {1, 1, 2, 20000, 1, 1}, {}, false);
            }).find("which scratch holds"),
            std::string::npos);
  EXPECT_NE(refused([](Scene& s) {
              s.region().stages[0].operands.push_back({s.tensor(DType::f32, {1, 2, 5, 24}), {1, 1, 4, 1}});
            }).find("repetition of an operand"),
            std::string::npos);
}

}  // namespace
}  // namespace octavo::testing
