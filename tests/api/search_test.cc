// The planner's search: whatever the costs say, the plan computes the same bits; it never costs more than the default choices;
// equal meanings give equal plans.
#include "plan/search/search.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <numeric>

#include "cpu/provider.h"
#include "plan/plan.h"
#include "reference/evaluate.h"
#include "region/key.h"
#include "support/costs.h"
#include "support/feeds.h"
#include "support/fuzz_setting.h"
#include "support/placement.h"
#include "support/run_plan.h"

namespace octavo {
namespace {

using testing::ArbitraryCosts;

using testing::has_float_sum;

TEST(Search, ArbitraryCostsNeverChangeTheBits) {
  const std::uint64_t graphs = testing::fuzz_setting("OCTAVO_FUZZ_GRAPHS", testing::rounds(100, 300, 5000)),
                      first = testing::fuzz_setting("OCTAVO_FUZZ_SEED", 1);
  std::map<std::string, int> chosen;
  std::vector<std::uint64_t> seeds(graphs);
  std::iota(seeds.begin(), seeds.end(), first);
  seeds.push_back(1194);  // a part of a concatenation is a copy of another part, and others could be stored in one pass with it
  for (const std::uint64_t seed : seeds) {
    const std::string where = "seed " + std::to_string(seed) +
                              "\n  repeat: OCTAVO_FUZZ_GRAPHS=1 OCTAVO_FUZZ_SEED=" + std::to_string(seed) +
                              " test_api --gtest_filter=Search.Arbitrary*";
    const ir::Graph g = testing::random_network(seed);
    const auto& providers = cpu::providers();
    const auto standard = plan::make_plan(g, providers, {});
    ASSERT_TRUE(standard) << where << standard.error().message;
    ArbitraryCosts costs(seed);
    costs.whole_plans = seed % 3 != 0;
    plan::PlanOptions options;
    options.costs = &costs;
    options.effort = 2 + static_cast<int>(seed % 4);
    options.threads = 1 + static_cast<int>(seed % 3);
    const auto planned = plan::make_plan(g, providers, options);
    ASSERT_TRUE(planned) << where << planned.error().message;
    ASSERT_TRUE(region::verify(planned->plan)) << where << region::verify(planned->plan).error().message;
    std::string listing;
    for (const region::Decision& d : planned->plan.decisions) {
      if (d.chosen == 0) continue;
      ++chosen[d.choice];
      listing += d.choice + " " + d.where + " -> " + d.candidates[d.chosen].name + "\n";
    }
    if (has_float_sum(standard->plan)) continue;
    const auto feeds = testing::seeded_feeds(g, seed);
    const auto want = reference::evaluate(g, feeds);
    ASSERT_TRUE(want) << where;
    const auto got = testing::run_plan(planned->plan, providers, feeds, seed % 2 == 0);
    ASSERT_TRUE(got) << where << got.error().message;
    ASSERT_EQ(testing::first_difference(*want, *got), "") << where << "\n" << listing;
    if (seed % 4 != 0) continue;
    testing::PlacementCounts moves;  // equal meaning, equal costs: equal plan, whatever was chosen
    const auto other = plan::make_plan(testing::place_otherwise(g, seed * 31, 12, moves), providers, options);
    ASSERT_TRUE(other) << where << other.error().message;
    ASSERT_EQ(region::plan_hash(planned->plan), region::plan_hash(other->plan)) << where << "\n" << listing;
  }
  for (const auto& [kind, n] : chosen) std::printf("%s=%d ", kind.c_str(), n);
  std::printf("\n");
  if (graphs >= 100) {
    for (const char* kind : {"concat", "stores", "direct-store"}) EXPECT_GT(chosen[kind], 0) << kind << " was never chosen";
  }
}

TEST(Search, NeverCostsMoreThanTheDefaultPlan) {
  double saved = 0;
  for (std::uint64_t seed = 1, last = testing::rounds(20, 60); seed <= last; ++seed) {
    ir::Graph g = testing::random_network(seed);
    ArbitraryCosts costs(seed + 1000);
    plan::PlanOptions options;
    options.costs = &costs;
    const auto sum = [&](int effort) {
      options.effort = effort;
      const auto p = plan::make_plan(g, cpu::providers(), options);
      EXPECT_TRUE(p) << p.error().message;
      double t = 0;
      for (const region::Region& r : p->plan.regions) t += r.seconds;
      return t;
    };
    const double standard = sum(1);
    for (const int effort : {2, 3, 5}) {
      const double found = sum(effort);
      EXPECT_LE(found, standard * (1 + 1e-12)) << "seed " << seed << " effort " << effort;
      saved += standard - found;
    }
  }
  EXPECT_GT(saved, 0) << "the search never found anything: the test cannot fail";
}

}  // namespace
}  // namespace octavo
