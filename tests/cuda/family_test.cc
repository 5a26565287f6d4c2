// What all families share: the table, parameters of tactics, and when kernels may start.
#include "cuda/family.h"

#include <gtest/gtest.h>

#include <set>

#include "cuda/families/conv/conv_mma.h"
#include "cuda/families/families.h"
#include "cuda/families/rows/rows.h"
#include "cuda/provider.h"

namespace octavo::testing {
namespace {

TEST(Family, TheTableHasEachNameOnceAndSaysWhatParametersMean) {
  std::set<std::string_view> names;
  for (const cuda::Family* f : cuda::families()) {
    EXPECT_TRUE(names.insert(f->name()).second) << f->name();
    for (const cuda::ParameterRow& row : f->parameters()) EXPECT_FALSE(row.name.empty() || row.meaning.empty()) << f->name();
  }
  EXPECT_TRUE(names.contains("conv.u8s8.mma"));
}

TEST(Family, TheProviderSaysWhatParametersOfATacticMean) {
  const auto provider = cuda::make_provider({}, {});
  region::Tactic tactic;
  tactic.provider = "cuda";
  for (const cuda::Family* f : cuda::families()) {
    tactic.family = f->name();
    const auto rows = provider->parameters_of(tactic);
    const auto wanted = f->parameters();
    ASSERT_EQ(rows.size(), wanted.size()) << f->name();
    for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].meaning, wanted[i].meaning) << f->name();
  }
  tactic.provider = "cpu";
  EXPECT_TRUE(provider->parameters_of(tactic).empty());
}

TEST(Family, ParametersAreReadAsTheyAreWritten) {
  cuda::ConvTile t;
  t.m = 64, t.warps_n = 4, t.resident = 1;
  const cuda::Parameters spelled = cuda::spell(t);
  EXPECT_EQ(spelled.at("tile"), "64x128x64");
  EXPECT_EQ(spelled.at("warps"), "2x4");
  EXPECT_EQ(spelled.at("filter"), "resident");
  const auto read = cuda::parse<cuda::ConvTile>(spelled, "conv");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(cuda::spell(*read), spelled);
}

TEST(Family, OtherParametersAreRefusedWithWhatTheyMean) {
  using cuda::RowTile;
  const cuda::Parameters good{{"rows", "4"}, {"warps", "2"}};
  ASSERT_TRUE(cuda::parse<RowTile>(good, "norm.rows"));
  for (const char* value : {"", "0", "-1", "04", "4x2", "4 ", "four", "99999999999"}) {
    cuda::Parameters bad = good;
    bad["rows"] = value;
    EXPECT_FALSE(cuda::parse<RowTile>(bad, "norm.rows")) << value;
  }
  cuda::Parameters more = good;
  more["stages"] = "2";
  const auto wrong = cuda::parse<RowTile>(more, "norm.rows");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message,
            "norm.rows: parameters \"rows=4 stages=2 warps=2\" are not what it takes:\n  rows: rows of a block\n  warps: warps of "
            "a block");
  cuda::Parameters filter = cuda::spell(cuda::ConvTile{});
  filter["filter"] = "Resident";
  EXPECT_FALSE(cuda::parse<cuda::ConvTile>(filter, "conv"));
  filter.erase("filter");
  EXPECT_FALSE(cuda::parse<cuda::ConvTile>(filter, "conv"));
}

TEST(Family, ATileMayBeLeftOutAsAWhole) {
  using Tile = std::optional<cuda::RowTile>;
  EXPECT_EQ(cuda::spell(Tile()), cuda::Parameters());
  EXPECT_EQ(*cuda::parse<Tile>({}, "any"), std::nullopt);
  EXPECT_TRUE(cuda::parse<Tile>(cuda::spell(Tile(cuda::RowTile{2, 1})), "any"));
  EXPECT_FALSE(cuda::parse<Tile>({{"rows", "2"}}, "any"));
  EXPECT_TRUE(cuda::parse<cuda::NoTile>({}, "copy"));
  EXPECT_FALSE(cuda::parse<cuda::NoTile>({{"rows", "2"}}, "copy"));
}

TEST(Family, KernelsStartEarlyFromHopperOn) {
  for (const int no : {0, 75, 80, 89}) EXPECT_FALSE((cuda::Target{{no, false}}.starts_early())) << no;
  for (const int yes : {90, 100, 120})
    EXPECT_TRUE((cuda::Target{{yes, true}}.starts_early() && cuda::Target{{yes, false}}.starts_early())) << yes;
}

TEST(Family, AnArchitectureIsReadFromItsTextOnce) {
  static_assert(cuda::Architecture("sm_90a") == cuda::Architecture(90, true));
  for (const char* text : {"sm_75", "sm_80", "sm_90", "sm_90a", "sm_100", "sm_120a"}) {
    const auto read = cuda::parse_architecture(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(read->text(), text);
  }
  EXPECT_EQ(cuda::parse_architecture("sm_90"), cuda::Architecture(90, false));
  for (const char* text : {"", "sm_", "90", "sm_a", "sm_90b", "sm_90aa", "SM_90", " sm_90", "sm_90 ", "sm_-90", "sm_99999999999"})
    EXPECT_FALSE(cuda::parse_architecture(text)) << text;
  EXPECT_EQ(cuda::Architecture().text(), "");
}

TEST(Family, KernelsAreChosenByTheNumberOfTheArchitecture) {
  for (const int without : {70, 75, 78}) EXPECT_FALSE(cuda::why_no_wide_products({{without, false}}).empty()) << without;
  for (const int with : {80, 87, 90, 120}) EXPECT_TRUE(cuda::why_no_wide_products({{with, false}}).empty()) << with;
  EXPECT_TRUE(cuda::why_no_warpgroups({{90, true}}).empty());
  EXPECT_FALSE(cuda::why_no_warpgroups({{90, false}}).empty()) << "sm_90 without its own instructions";
  EXPECT_FALSE(cuda::why_no_warpgroups({{100, true}}).empty());
}

}  // namespace
}  // namespace octavo::testing
