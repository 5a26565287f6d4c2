// Work on several threads ends soon after its watcher wants no more of it, and the watcher is asked by the calling thread alone.
#include "quantize/data/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/task.h"

namespace octavo::quantize {
namespace {

TEST(Parallel, DoesEveryPieceOnce) {
  for (const int threads : {0, 1, 2, 5}) {
    std::vector<std::atomic<int>> done(37);
    ASSERT_TRUE(parallel(done.size(), threads, [&](std::size_t i) { ++done[i]; }));
    for (const auto& d : done) EXPECT_EQ(d, 1) << threads;
  }
  EXPECT_TRUE(parallel(0, 3, [](std::size_t) { FAIL(); }));
}

TEST(Parallel, StopsWhereItIsNotWantedAnyMore) {
  const auto caller = std::this_thread::get_id();
  std::atomic<bool> asked_elsewhere{false};
  std::atomic<int> started{0};
  const TaskScope task([&](std::string_view) {
    if (std::this_thread::get_id() != caller) asked_elsewhere = true;
    return started < 3;
  });
  const auto begun = std::chrono::steady_clock::now();
  const Status status = parallel(10000, 3, [&](std::size_t) {  // a piece that ends when it is told
    ++started;
    while (check_cancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  EXPECT_FALSE(status);
  EXPECT_TRUE(task.cancelled());
  EXPECT_FALSE(asked_elsewhere);
  EXPECT_LE(started, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
}

TEST(Parallel, TheWatcherIsAskedWhileTheCallerWaits) {
  std::atomic<int> others{0};
  const auto caller = std::this_thread::get_id();
  const TaskScope task([&](std::string_view) { return others == 0; });
  const Status status = together(2, [&] {
    if (std::this_thread::get_id() == caller) return;  // has nothing to do, and waits
    ++others;
    while (check_cancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  EXPECT_FALSE(status);
}

}  // namespace
}  // namespace octavo::quantize
