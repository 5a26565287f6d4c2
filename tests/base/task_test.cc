// Work that is watched: steps are told, cancellation is an error, scopes nest, nobody watching costs nothing.
#include "base/task.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace octavo {
namespace {

TEST(Task, NobodyWatches) {
  EXPECT_TRUE(begin_step("work"));
  EXPECT_TRUE(check_cancelled());
  const TaskScope empty({});
  EXPECT_TRUE(begin_step("work"));
  EXPECT_FALSE(empty.cancelled());
}

TEST(Task, StepsAreTold) {
  std::vector<std::string> steps;
  const TaskScope scope([&](std::string_view step) {
    steps.emplace_back(step);
    return true;
  });
  EXPECT_TRUE(begin_step("import"));
  EXPECT_TRUE(begin_step("plan"));
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(check_cancelled());
  ASSERT_GE(steps.size(), 2U);
  EXPECT_EQ(steps[0], "import");
  EXPECT_EQ(steps[1], "plan");
  EXPECT_LT(steps.size(), 20U) << "asked 20 times a second at most";
}

TEST(Task, CancellationIsAnErrorAndStays) {
  int asked = 0;
  const TaskScope scope([&](std::string_view step) {
    ++asked;
    return step != "plan";
  });
  EXPECT_TRUE(begin_step("import"));
  const Status stopped = begin_step("plan");
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().message, "cancelled at step \"plan\"");
  EXPECT_TRUE(scope.cancelled());
  EXPECT_FALSE(check_cancelled());
  EXPECT_FALSE(begin_step("import"));
  EXPECT_EQ(asked, 2) << "nobody is asked again after that";
}

TEST(Task, ScopesNest) {
  const TaskScope outer([](std::string_view) { return false; });
  {
    const TaskScope inner([](std::string_view) { return true; });
    EXPECT_TRUE(begin_step("inner"));
    EXPECT_FALSE(inner.cancelled());
  }
  EXPECT_FALSE(begin_step("outer"));
  EXPECT_TRUE(outer.cancelled());
}

}  // namespace
}  // namespace octavo
