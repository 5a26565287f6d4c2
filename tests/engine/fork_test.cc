// A forked child has none of the parent's threads: pools start new ones, whatever the parent's did at the moment of the fork.
#include "base/fork.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <thread>

#include "engine/thread_pool.h"

#ifdef __SANITIZE_THREAD__
/// ThreadSanitizer ends a child that starts threads, which is what is tested here, unless it is told not to.
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_options() {  // NOLINT(bugprone-reserved-identifier)
  return "die_after_fork=0";
}
#endif

namespace octavo::engine {
namespace {

/// Exit code of a child that runs `work`; 99: it hung and was killed by its alarm.
int in_child(const std::function<bool()>& work) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(20);
    ::_exit(work() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

/// Every task once, by several workers where there are several.
bool runs(ThreadPool& pool) {
  std::atomic<int> sum{0};
  for (int job = 0; job < 50; ++job) {
    pool.run(64, [&](int begin, int end, int) {
      for (int i = begin; i < end; ++i) sum += i;
    });
  }
  return sum == 50 * 63 * 64 / 2;
}

TEST(Fork, PoolsRunInTheChild) {
  for (const int threads : {1, 2, 4}) {
    const auto pool = ThreadPool::create(threads);
    ASSERT_TRUE(pool) << pool.error().message;
    ASSERT_TRUE(runs(**pool));
    EXPECT_EQ(in_child([&] { return (*pool)->ready().has_value() && runs(**pool); }), 0) << threads << " threads";
    EXPECT_TRUE((*pool)->ready()) << "nothing to do in the parent";
    EXPECT_TRUE(runs(**pool));
  }
}

TEST(Fork, AndInTheChildsChild) {
  const auto pool = ThreadPool::create(2);
  ASSERT_TRUE(pool);
  EXPECT_EQ(in_child([&] {
              if (!(*pool)->ready() || !runs(**pool)) return false;
              return in_child([&] { return (*pool)->ready().has_value() && runs(**pool); }) == 0;
            }),
            0);
}

TEST(Fork, PoolsAreDestroyedInTheChild) {
  auto pool = ThreadPool::create(3);
  ASSERT_TRUE(pool);
  ASSERT_TRUE(runs(**pool));
  EXPECT_EQ(in_child([&] {
              pool->reset();  // never ran there
              return true;
            }),
            0);
}

TEST(Fork, WorkersThatSleepOrSpinAtTheFork) {
  const auto pool = ThreadPool::create(2);
  ASSERT_TRUE(pool);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(runs(**pool));
    std::this_thread::sleep_for(std::chrono::microseconds(20 * i));
    EXPECT_EQ(in_child([&] { return (*pool)->ready().has_value() && runs(**pool); }), 0) << i;
  }
}

TEST(Fork, TheMutexIsFreeInTheChild) {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) const std::lock_guard lock(fork_safe_mutex());
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(in_child([] {
                const std::lock_guard lock(fork_safe_mutex());
                return true;
              }),
              0);
  }
  stop = true;
  busy.join();
}

TEST(Fork, GenerationsCount) {
  const unsigned before = fork_generation();
  EXPECT_EQ(in_child([&] { return fork_generation() == before + 1; }), 0);
  EXPECT_EQ(fork_generation(), before);
}

}  // namespace
}  // namespace octavo::engine
