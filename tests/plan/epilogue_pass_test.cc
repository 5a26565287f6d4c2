// The epilogue of a norm or a running sum in a pass of its own: from the first long operator on, with the same bits; nothing is offered for short ones.
#include <gtest/gtest.h>

#include <string>

#include "ir/text.h"
#include "plan/plan.h"
#include "reference/evaluate.h"
#include "reference/oracle_provider.h"
#include "support/feeds.h"
#include "support/run_plan.h"

namespace octavo {
namespace {

/// y = a norm or a running sum of 16384 elements, or fewer, then `tail`.
std::string network(const std::string& anchor, const std::string& tail, int rows = 128) {
  const std::string dims = "[1," + std::to_string(rows) + ",128]";
  return "graph \"g\"\nx = input : f32" + dims + "\ns = constant f32[" + std::to_string(rows) + "] seed:1\nb = constant f32[" +
         std::to_string(rows) + "] seed:2\na = " + anchor + " from {\"anchor\"}\n" + tail + "output y\n";
}
constexpr const char* kNorm = "instance_norm x s b {epsilon=1e-5}";
constexpr const char* kSum = "cumulate x {axis=1}";
constexpr const char* kGelu = "h = relu a from {\"relu\"}\ny = gelu h {approximate=\"none\"} from {\"gelu\"}\n";

/// Regions of the plan that force makes; checks its bits.
std::size_t regions(const std::string& text, bool forced) {
  auto g = ir::parse(text);
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  if (!g) return 0;
  const auto feeds = testing::seeded_feeds(*g, 1);
  const auto want = reference::evaluate(*g, feeds);
  EXPECT_TRUE(want) << (want ? "" : want.error().message);
  const std::vector<const region::Provider*> providers{&reference::oracle_provider()};
  plan::PlanOptions options;
  if (forced) options.forced.insert("epilogue-pass");
  const auto made = plan::make_plan(*g, providers, options);
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  if (!made || !want) return 0;
  const auto got = testing::run_plan(made->plan, providers, feeds);
  EXPECT_TRUE(got) << (got ? "" : got.error().message);
  EXPECT_EQ(testing::first_difference(*want, *got), "") << text;
  return made->plan.regions.size();
}

TEST(EpiloguePass, LongEpiloguesOfNormsAndSumsMayBeApart) {
  for (const char* anchor : {kNorm, kSum}) {
    EXPECT_EQ(regions(network(anchor, kGelu), false), 1U) << anchor;
    EXPECT_EQ(regions(network(anchor, kGelu), true), 2U) << anchor;
  }
}

TEST(EpiloguePass, BranchesLeaveTogether) {
  const std::string both =
      "e = exp a from {\"exp\"}\nn = neg a from {\"neg\"}\nf = exp n from {\"other\"}\ny = div e f from {\"div\"}\n";
  EXPECT_EQ(regions(network(kSum, both), false), 1U);
  EXPECT_EQ(regions(network(kSum, both), true), 3U);  // a pass for each exponent; the quotient is in one of them
}

TEST(EpiloguePass, ShortOnesAndFewElementsStay) {
  EXPECT_EQ(regions(network(kNorm, "y = relu a from {\"relu\"}\n"), true), 1U);
  EXPECT_EQ(regions(network(kNorm, kGelu, 127), true), 1U);
}

}  // namespace
}  // namespace octavo
