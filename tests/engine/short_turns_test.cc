#include "engine/short_turns.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

#include "engine/thread_pool.h"

namespace octavo::engine {
namespace {

/// Nanoseconds of the calling thread's turns as they were asked for; 0: the system has no such setting.
std::uint64_t turn() {
  std::array<std::byte, 56> attributes{};
  if (syscall(SYS_sched_getattr, 0, attributes.data(), attributes.size(), 0) != 0) return 0;
  std::uint64_t runtime = 0;
  std::memcpy(&runtime, attributes.data() + 24, sizeof runtime);
  return runtime;
}

TEST(ShortTurns, CallerAndWorkersOfAPool) {
  std::thread([] {  // of its own: the setting lasts as long as the thread
    if (turn() == 0) GTEST_SKIP() << "the system does not let threads ask for turns (Linux 6.12)";
    const int nice = getpriority(PRIO_PROCESS, 0);
    const auto pool = ThreadPool::create(2);
    ASSERT_TRUE(pool);
    std::array<std::uint64_t, 2> turns{};
    std::atomic<bool> both{false};
    (*pool)->run(2, [&](int, int, int worker) {
      turns[static_cast<std::size_t>(worker)] = turn();
      if (worker == 1) both = true;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!both && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    });
    EXPECT_EQ(turns, (std::array<std::uint64_t, 2>{300'000, 300'000}));
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), nice);
  })
      .join();
}

TEST(ShortTurns, OtherPoliciesStay) {
  std::thread([] {
    const sched_param none{};
    ASSERT_EQ(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    const std::uint64_t before = turn();
    ask_for_short_turns();
    EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
    EXPECT_EQ(turn(), before);
  }).join();
}

}  // namespace
}  // namespace octavo::engine
