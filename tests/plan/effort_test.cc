// The table of efforts: what texts and callers rely on.
#include "plan/effort.h"

#include <gtest/gtest.h>

#include "plan/context.h"
#include "plan/options.h"

namespace octavo::plan {
namespace {

/// A higher level leaves out nothing that a lower one does.
TEST(Effort, HigherLevelsDoMore) {
  for (int level = 1; level <= kMostEffort; ++level) {
    const Effort &less = effort_at(level - 1), &more = effort_at(level);
    EXPECT_TRUE(more.measures || !less.measures) << level;
    EXPECT_TRUE(more.searches || !less.searches) << level;
    EXPECT_TRUE(more.compares_plans || !less.compares_plans) << level;
    EXPECT_TRUE(more.small_choices || !less.small_choices) << level;
    EXPECT_TRUE(more.variants || !less.variants) << level;
    EXPECT_GE(more.choices, less.choices) << level;
    EXPECT_GE(more.beam, less.beam) << level;
    EXPECT_GE(more.tactic_seconds, less.tactic_seconds) << level;
    EXPECT_GE(more.sets, less.sets) << level;
    EXPECT_GE(more.other_kernels, less.other_kernels) << level;
    EXPECT_TRUE(more.measures || !more.compares_plans) << level << ": plans are run only where times of this machine count";
    EXPECT_EQ(more.beam > 0, more.combine == Combine::components) << level;
    EXPECT_GE(more.sets, kFewestOtherSets) << level << ": MeasuredCosts divides between the two";
  }
}

TEST(Effort, LevelsBeyondTheEnds) {
  EXPECT_EQ(&effort_at(-1), &effort_at(0));
  EXPECT_EQ(&effort_at(kMostEffort + 1), &effort_at(kMostEffort));
  EXPECT_TRUE(is_effort(0) && is_effort(kMostEffort));
  EXPECT_FALSE(is_effort(-1) || is_effort(kMostEffort + 1));
}

TEST(Effort, TextsSayTheTable) {
  const std::string text = describe_efforts();
  EXPECT_EQ(text, "0: estimates; 1: kernels are measured; 2 (default) to 5: plans are searched too");
  EXPECT_EQ(first_effort(&Effort::measures), kEstimates + 1);
  EXPECT_TRUE(effort_at(kDefaultEffort).searches);
}

/// The standard machine's caches where nothing is measured: the plan is then the same everywhere.
TEST(Effort, ThresholdsFollowTheMachineThatTimesAreOf) {
  PlanOptions options;
  options.effort = kEstimates;
  EXPECT_EQ(machine_of(options), standard_machine());
  options.effort = first_effort(&Effort::measures);
  EXPECT_EQ(machine_of(options), this_machine());
}

}  // namespace
}  // namespace octavo::plan
