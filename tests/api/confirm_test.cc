// Whole plans decide: candidates that pay by parts stay only if the whole plan is faster with them.
#include "plan/search/confirm.h"

#include <gtest/gtest.h>

#include "base/causes/plan_search.h"
#include "cpu/provider.h"
#include "plan/plan.h"
#include "support/costs.h"
#include "support/placement.h"

namespace octavo {
namespace {

/// Whole-plan times by the number of the comparison; parts have arbitrary times.
class Scripted final : public testing::ArbitraryCosts {
 public:
  Scripted(std::uint64_t seed, std::vector<double> ratios) : ArbitraryCosts(seed), ratios_(std::move(ratios)) {}
  Result<std::optional<Pair>> compare(const region::Plan& a, const region::Plan& b) override {
    EXPECT_NE(region::plan_hash(a), region::plan_hash(b));
    EXPECT_LT(asked, ratios_.size()) << "more comparisons than promised";
    return std::optional(Pair{1e-3, 1e-3 * ratios_[std::min(asked++, ratios_.size() - 1)]});
  }
  std::size_t asked = 0;

 private:
  std::vector<double> ratios_;
};

struct Outcome {
  std::string hash;
  std::vector<region::Decision> decisions;
  std::size_t asked = 0;
  std::set<std::string> kinds;  ///< choices with another candidate than the default
};

Outcome planned(std::uint64_t seed, int effort, std::vector<double> ratios) {
  Scripted costs(seed, std::move(ratios));
  plan::PlanOptions options;
  options.costs = &costs;
  options.effort = effort;
  options.disabled = {"tactics"};
  auto p = plan::make_plan(testing::random_network(seed), cpu::providers(), options);
  EXPECT_TRUE(p) << p.error().message;
  Outcome out{region::plan_hash(p->plan), p->plan.decisions, costs.asked, {}};
  for (const region::Decision& d : out.decisions) {
    if (d.chosen != 0) out.kinds.insert(d.choice);
  }
  return out;
}

/// The first network whose search takes candidates of exactly two choices.
std::uint64_t of_two_kinds() {
  for (std::uint64_t seed = 1; seed < 2000; ++seed) {
    if (planned(seed, 2, {0.9}).kinds.size() == 2) return seed;
  }
  ADD_FAILURE() << "no network has candidates of two choices";
  return 1;
}

TEST(Confirm, WholePlansDecide) {
  const std::uint64_t seed = of_two_kinds();
  const Outcome all = planned(seed, 2, {0.9}), none = planned(seed, 1, {0.9});
  EXPECT_EQ(all.asked, 1U) << "the first comparison confirms";
  EXPECT_EQ(none.asked, 0U);
  ASSERT_NE(all.hash, none.hash);
  const Outcome slower = planned(seed, 2, {1.0, 1.0, 0.996});  // all, either kind: not by more than 1 %
  EXPECT_EQ(slower.asked, 3U);
  EXPECT_EQ(slower.hash, none.hash);
  EXPECT_TRUE(slower.kinds.empty());
  int said = 0;
  for (const region::Decision& d : slower.decisions) {
    if (has(d.reasons, cause::whole_plan_slower)) ++said;
  }
  EXPECT_GT(said, 1);
}

TEST(Confirm, KindsAreTriedAlone) {
  const std::uint64_t seed = of_two_kinds();
  const Outcome all = planned(seed, 2, {0.9}), first = planned(seed, 2, {1.1, 0.9, 1.1}),
                second = planned(seed, 2, {1.1, 1.1, 0.9});
  EXPECT_EQ(first.asked, 3U);
  EXPECT_EQ(first.kinds, std::set<std::string>{*all.kinds.begin()});
  EXPECT_EQ(second.kinds, std::set<std::string>{*all.kinds.rbegin()});
  EXPECT_NE(first.hash, second.hash);
  EXPECT_NE(first.hash, all.hash);
  for (const region::Decision& d : first.decisions) {
    if (d.choice != *all.kinds.rbegin() || !has(d.reasons, cause::whole_plan_slower)) continue;
    EXPECT_DOUBLE_EQ(std::get<double>(d.reasons[0].values[1]), 1100e-6);
    EXPECT_DOUBLE_EQ(std::get<double>(d.reasons[0].values[2]), 1000e-6);
  }
  const Outcome both = planned(seed, 2, {1.1, 0.9, 0.9, 0.8});  // together after all
  EXPECT_EQ(both.asked, 4U);
  EXPECT_EQ(both.hash, all.hash);
  const Outcome better = planned(seed, 2, {1.1, 0.9, 0.8, 1.0});
  EXPECT_EQ(better.hash, second.hash) << "the better of two that are slow together";
}

TEST(Confirm, NeverSlowerThanWhatNothingWasMeasuredFor) {
  const std::uint64_t seed = of_two_kinds();
  plan::PlanOptions options;
  const std::string unmeasured = region::plan_hash(plan::make_plan(testing::random_network(seed), cpu::providers(), options)->plan);
  options.effort = 2;
  for (const double ratio : {0.9, 1.004, 1.006, 1.5}) {
    Scripted costs(seed, {0.9, ratio, ratio});  // the search is confirmed; then against effort 0
    options.costs = &costs;
    const auto p = plan::make_plan(testing::random_network(seed), cpu::providers(), options);
    ASSERT_TRUE(p);
    EXPECT_EQ(costs.asked, 2U);
    const bool back = ratio > 1.005;
    EXPECT_EQ(region::plan_hash(p->plan) == unmeasured, back) << ratio;
    const auto& decisions = p->plan.decisions;
    EXPECT_EQ(std::any_of(decisions.begin(), decisions.end(), [](const auto& d) { return d.choice == "tactics"; }), back);
    for (const auto& d : decisions) {
      if (back && d.choice != "tactics") {
        EXPECT_EQ(d.chosen, 0U);
      }
    }
  }
}

}  // namespace
}  // namespace octavo
