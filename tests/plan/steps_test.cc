#include "plan/search/steps.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/task.h"

namespace octavo::plan {
namespace {

TEST(Steps, SayHowLongTheRestTakesOnceThereIsSomethingToGoBy) {
  EXPECT_EQ(step_text("choice", 1, 96, 0), "plan: choice 1 of 96");
  EXPECT_EQ(step_text("choice", 1, 96, 30), "plan: choice 1 of 96") << "nothing is done yet";
  EXPECT_EQ(step_text("choice", 5, 96, 0.9), "plan: choice 5 of 96");
  EXPECT_EQ(step_text("choice", 5, 96, 2), "plan: choice 5 of 96, about 46 s more");
  EXPECT_EQ(step_text("choice", 5, 9, 400), "plan: choice 5 of 9, about 8 min more");
  EXPECT_EQ(step_text("choice", 96, 96, 40), "plan: choice 96 of 96");
}

TEST(Steps, TellTheWatcherAndStopWhenItSays) {
  std::vector<std::string> seen;
  const TaskScope scope([&](std::string_view step) {
    seen.emplace_back(step);
    return seen.size() < 2;
  });
  Steps steps("region", 3);
  EXPECT_TRUE(steps.next());
  EXPECT_FALSE(steps.next());
  EXPECT_EQ(seen, (std::vector<std::string>{"plan: region 1 of 3", "plan: region 2 of 3"}));
}

}  // namespace
}  // namespace octavo::plan
