// The first runs of a tactic, with times of a table instead of a clock.
#include "tune/first_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace octavo {
namespace {

struct Ran {
  double seconds;
  bool hopeless;
  std::size_t runs;
};

/// The runs take `times`, and the last of them from then on.
Ran ran(const std::vector<double>& times, double least, double seconds_each = 0.1) {
  std::size_t runs = 0;
  const auto r =
      tune::first_runs([&]() -> Result<double> { return times[std::min(runs++, times.size() - 1)]; }, least, seconds_each);
  EXPECT_TRUE(r);
  return {r->seconds, r->hopeless, runs};
}

constexpr double us = 1e-6, ms = 1e-3;

TEST(FirstRuns, OnesThatLostTheCoreDecideNothing) {
  const Ran once = ran({10 * ms, 15 * us}, 60 * us);
  EXPECT_FALSE(once.hopeless);
  EXPECT_EQ(once.seconds, 15 * us);
  const Ran twice = ran({10 * ms, 1.7 * ms, 15 * us}, 60 * us);
  EXPECT_FALSE(twice.hopeless) << "the core was lost in the second run as well";
  EXPECT_EQ(twice.seconds, 15 * us);
}

TEST(FirstRuns, WhatIsSlowIsNotRunForLong) {
  const Ran slow = ran({1 * ms}, 60 * us);
  EXPECT_TRUE(slow.hopeless);
  EXPECT_EQ(slow.runs, 5U) << "1 ms may be a lost core: four more runs";
  EXPECT_EQ(ran({8 * ms}, 60 * us).runs, 3U) << "10 ms of second looks are enough";
  const Ran long_one = ran({40 * ms}, 60 * us);
  EXPECT_TRUE(long_one.hopeless);
  EXPECT_EQ(long_one.runs, 1U) << "no lost core explains 40 ms";
}

TEST(FirstRuns, TwiceTheBoundOfLaterRunsIsNotHopeless) {
  EXPECT_FALSE(ran({6 * 60 * us}, 60 * us).hopeless);
  EXPECT_TRUE(ran({6.1 * 60 * us}, 60 * us).hopeless);
}

TEST(FirstRuns, ShortOnesRunFiveTimesAndLongOnesLess) {
  EXPECT_EQ(ran({15 * us}, 0).runs, 5U);
  EXPECT_EQ(ran({1 * ms}, 0).runs, 2U);
  EXPECT_EQ(ran({1100 * ms}, 0).runs, 1U) << "more than ten times the 0.1 s of its timing";
  const Ran settled = ran({1 * ms, 90 * us, 80 * us, 70 * us, 60 * us}, 0);
  EXPECT_EQ(settled.runs, 5U) << "short behind its first run";
  EXPECT_EQ(settled.seconds, 60 * us);
}

TEST(FirstRuns, ErrorsAreReturned) {
  int runs = 0;
  const auto r = tune::first_runs(
      [&]() -> Result<double> {
        if (++runs == 2) return fail(ErrorKind::internal, "the second run fails");
        return 10 * ms;
      },
      60 * us, 0.1);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().message, "the second run fails");
}

}  // namespace
}  // namespace octavo
