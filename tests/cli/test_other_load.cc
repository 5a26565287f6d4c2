#include <gtest/gtest.h>

#include "cli/commands/other_load.h"

namespace octavo::cli {
namespace {

constexpr const char* kStat =
    "cpu  400 0 200 1000 0 0 0 30 0 0\n"
    "cpu0 300 10 100 500 7 1 2 10 0 0\n"
    "cpu1 100 0 100 500 0 0 0 20 0 0\n"
    "cpu12 1000 0 0 0 0 0 0 0 0 0\n"
    "intr 5 6 7\n";

TEST(OtherLoad, TimesOfTheProcessorsThatCount) {
  const CoreTimes all = core_times(kStat, {}, 100);
  EXPECT_DOUBLE_EQ(all.busy, 16.13);
  EXPECT_DOUBLE_EQ(all.stolen, 0.3);
  const CoreTimes one = core_times(kStat, {1}, 100);
  EXPECT_DOUBLE_EQ(one.busy, 2);
  EXPECT_DOUBLE_EQ(one.stolen, 0.2);
  EXPECT_DOUBLE_EQ(core_times("", {0}, 100).busy, 0);
  EXPECT_DOUBLE_EQ(core_times("cpu0\ncpux 1 2\n", {}, 100).busy, 0);
}

TEST(OtherLoad, NothingIsSaidOfNoTime) {
  const OtherLoad load;
  EXPECT_EQ(load.cores(), 0);
  EXPECT_EQ(load.warning(0.2), "");
  EXPECT_TRUE(load.warning(0.9).starts_with("other processes used 0.9 of ")) << load.warning(0.9);
}

}  // namespace
}  // namespace octavo::cli
