#include "base/build_work.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace octavo {
namespace {

using std::chrono::milliseconds;

// An inner timer's seconds are not the outer one's, so that parts add up to the whole.
TEST(BuildWork, InnerTimersStopOuterOnes) {
  const BuildWork before = build_work();
  const auto begin = std::chrono::steady_clock::now();
  {
    const BuildTimer outer(&BuildWork::time);
    std::this_thread::sleep_for(milliseconds(20));
    {
      const BuildTimer inner(&BuildWork::prepare);
      std::this_thread::sleep_for(milliseconds(200));
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
  const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const BuildWork work = build_work() - before;
  EXPECT_GE(work.prepare, 0.2);
  EXPECT_GE(work.time, 0.04);
  EXPECT_LE(work.time + work.prepare, all) << "the inner timer's seconds count twice";
  EXPECT_EQ(work.wait, 0);
}

TEST(BuildWork, ThreadsAddUp) {
  const BuildWork before = build_work();
  std::thread other([] { add_build_work({.timed = 3, .kernels = 2, .compile = 1.5, .compile_processor = 1}); });
  add_build_work({.timed = 1, .kernels = 1, .compile = 0.5, .compile_processor = 0.25});
  other.join();
  const BuildWork work = build_work() - before;
  EXPECT_EQ(work.timed, 4U);
  EXPECT_EQ(work.kernels, 3U);
  EXPECT_NEAR(work.compile, 2, 1e-9);
  EXPECT_NEAR(work.compile_processor, 1.25, 1e-9);
}

}  // namespace
}  // namespace octavo
