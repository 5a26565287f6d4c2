#include "engine/thread_place.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <thread>
#include <utility>
#include <vector>

#include "engine/thread_pool.h"
#include "support/wait_until.h"

namespace octavo::engine {
namespace {

using testing::wait_until;

cpu_set_t allowed(int thread = 0) {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(thread, sizeof set, &set), 0);
  return set;
}

/// The first two cores that this process may use; the same twice where there is one.
std::pair<int, int> two_cores() {
  const cpu_set_t set = allowed();
  std::vector<int> cores;
  for (unsigned i = 0; i < CPU_SETSIZE && cores.size() < 2; ++i) {
    if (CPU_ISSET(i, &set)) cores.push_back(static_cast<int>(i));
  }
  return {cores.front(), cores.back()};
}

void use_only(std::initializer_list<int> cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<unsigned>(core), &set);
  EXPECT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
}

void pin(int core) {
  use_only({core});
}

/// A thread that computes until the end of the scope; `core` >= 0: on that core alone.
class Busy {
 public:
  explicit Busy(int core = -1) {
    thread_ = std::thread([this, core] {
      if (core >= 0) pin(core);
      number_ = current_thread();
      while (!stop_) seen_ = seen_ | (1ULL << static_cast<unsigned>(current_core() & 63));
    });
    EXPECT_TRUE(wait_until([&] { return number_ != 0; }));
  }
  ~Busy() {
    stop_ = true;
    thread_.join();
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] bool was_on(int core) const { return (seen_ >> static_cast<unsigned>(core & 63) & 1U) != 0; }
  void forget() { seen_ = 0; }

 private:
  std::atomic<int> number_{0};
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> seen_{0};
  std::thread thread_;
};

TEST(ThreadPlace, ProcessorTimeGrowsOnACoreAndStandsStillWithoutOne) {
  const Busy busy;
  const std::int64_t before = processor_time(busy.number());
  ASSERT_GE(before, 0);
  EXPECT_TRUE(wait_until([&] { return processor_time(busy.number()) > before; }));
  std::atomic<int> number{0};
  std::atomic<bool> go_on{false};
  std::thread sleeper([&] {
    number = current_thread();
    number.notify_all();
    go_on.wait(false);
  });
  number.wait(0);
  EXPECT_TRUE(wait_until([&] {  // once it sleeps
    const std::int64_t time = processor_time(number);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return processor_time(number) == time;
  }));
  go_on = true;
  go_on.notify_all();
  sleeper.join();
  EXPECT_EQ(processor_time(0), -1);
}

TEST(ThreadPlace, LeavesACoreAndMayUseTheSameCoresAsBefore) {
  const auto [first, second] = two_cores();
  if (first == second) GTEST_SKIP() << "needs two cores";
  std::thread([first = first, second = second] {
    const cpu_set_t all = allowed();
    pin(first);
    ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
    std::vector<int> taken;
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (i != second) taken.push_back(i);
    }
    EXPECT_TRUE(leave_cores(taken));
    EXPECT_EQ(current_core(), second);
    const cpu_set_t after = allowed();
    EXPECT_TRUE(CPU_EQUAL(&all, &after));
    taken.push_back(second);
    EXPECT_FALSE(leave_cores(taken)) << "no core is left";
    pin(first);
    EXPECT_FALSE(leave_cores(std::array<int, 1>{first})) << "the thread may use no other";
    EXPECT_EQ(current_core(), first);
  }).join();
}

TEST(ThreadPlace, BringsAThreadWhichMayUseTheSameCoresAsBefore) {
  const auto [first, second] = two_cores();
  if (first == second) GTEST_SKIP() << "needs two cores";
  for (const int core : {first, second}) {
    std::thread([core] {
      Busy busy;
      const cpu_set_t all = allowed(busy.number());
      pin(core);
      busy.forget();
      EXPECT_TRUE(wait_until([&] { return bring_here(busy.number()) && busy.was_on(core); }));
      const cpu_set_t after = allowed(busy.number());
      EXPECT_TRUE(CPU_EQUAL(&all, &after));
    }).join();
  }
  std::thread([first = first, second = second] {
    const Busy elsewhere(second);
    EXPECT_TRUE(wait_until([&, second = second] { return elsewhere.was_on(second); }));
    pin(first);
    EXPECT_FALSE(bring_here(elsewhere.number())) << "it may not use this core";
    EXPECT_FALSE(bring_here(0));
  }).join();
}

// The worker shares its core with a busy thread and loses it in the middle of tasks, which last longer than a tick of the system. The caller,
// on a core of its own, has nothing to do then: it brings the worker, and the worker leaves again.
TEST(ThreadPlace, APoolBringsAWorkerThatHasLostItsCore) {
  const auto [first, second] = two_cores();
  if (first == second) GTEST_SKIP() << "needs two cores";
  std::thread([first = first, second = second] {
    use_only({first, second});  // the worker too, or on a machine of many cores it runs on one that is free
    auto pool = ThreadPool::create(2);
    ASSERT_TRUE(pool);
    pin(first);  // the calling thread alone
    const Busy busy(second);
    std::array<std::atomic<int>, 2> number{};
    const auto run = [&] {
      (*pool)->run(2, [&](int, int, int worker) {
        number[static_cast<std::size_t>(worker)] = current_thread();
        const std::int64_t end = processor_time(current_thread()) + (worker == 0 ? 200'000 : 8'000'000);
        while (processor_time(current_thread()) < end) {
        }
      });
    };
    EXPECT_TRUE(wait_until([&] {
      run();
      return (*pool)->brought() > 0 && (*pool)->left_cores() > 0;
    })) << (*pool)->brought()
        << " times brought, " << (*pool)->left_cores() << " cores left";
    ASSERT_NE(number[1], 0);
    const cpu_set_t of_worker = allowed(number[1]), of_caller = allowed();
    EXPECT_TRUE(CPU_ISSET(static_cast<unsigned>(first), &of_worker) && CPU_ISSET(static_cast<unsigned>(second), &of_worker));
    EXPECT_EQ(CPU_COUNT(&of_caller), 1);
  }).join();
}

}  // namespace
}  // namespace octavo::engine
