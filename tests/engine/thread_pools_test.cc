// Threads that runs of many shapes share.
#include "engine/thread_pools.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "support/threads.h"

namespace octavo::engine {
namespace {

int tasks_run(ThreadPool& pool) {
  std::atomic<int> sum{0};
  pool.run(100, [&](int begin, int end, int) { sum += end - begin; });
  return sum;
}

TEST(ThreadPools, RunsInTurnHaveTheSameThreads) {
  std::atomic<int> number{0};
  std::thread([&] { number = gettid(); }).join();  // ThreadSanitizer starts a thread of its own beside a process's first
  ASSERT_TRUE(testing::thread_ends(number));
  ThreadPools pools;
  const std::size_t before = testing::threads_now();
  const ThreadPool* first = nullptr;
  for (int run = 0; run < 50; ++run) {
    auto lease = pools.take(3);
    ASSERT_TRUE(lease);
    if (first == nullptr) first = (*lease)->get();
    EXPECT_EQ((*lease)->get(), first);
    EXPECT_EQ((*lease)->get()->size(), 3);
    EXPECT_EQ(tasks_run(*(*lease)->get()), 100);
  }
  EXPECT_EQ(testing::threads_now(), before + 2);  // the caller is the third
  {
    auto other = pools.take(2);  // another size
    ASSERT_TRUE(other);
    EXPECT_NE((*other)->get(), first);
  }
  EXPECT_EQ(testing::threads_now(), before + 3);
  pools.trim();
  EXPECT_EQ(testing::threads_within(before), before);
  EXPECT_FALSE(pools.take(0));
}

TEST(ThreadPools, RunsAtTheSameTimeHaveThreadsOfTheirOwn) {
  ThreadPools pools;
  {
    auto one = pools.take(2), two = pools.take(2);
    ASSERT_TRUE(one && two);
    EXPECT_NE((*one)->get(), (*two)->get());
  }
  std::vector<std::thread> threads;
  std::atomic<int> sum{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int run = 0; run < 100; ++run) {
        auto lease = pools.take(2 + run % 2);
        if (lease) sum += tasks_run(*(*lease)->get());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(sum, 4 * 100 * 100);
}

/// Threads of pools that wait for the next run do not make the others sleep.
TEST(ThreadPools, ThreadsCountWhileARunHasThem) {
  const auto load = std::make_shared<CoreLoad>(2);
  auto pool = ThreadPool::create(3, load);
  ASSERT_TRUE(pool);
  EXPECT_TRUE(load->crowded());
  (*pool)->end_use();
  (*pool)->end_use();
  EXPECT_EQ(load->threads, 0);
  (*pool)->begin_use();
  (*pool)->begin_use();
  EXPECT_EQ(load->threads, 3);
  pool->reset();
  EXPECT_EQ(load->threads, 0);
}

}  // namespace
}  // namespace octavo::engine
