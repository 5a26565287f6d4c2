// cpu/team.h: workers that take steps together, in any order of coming, and what they leave in shared memory.
#include "cpu/team.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

namespace octavo::cpu {
namespace {

constexpr int kSteps = 300, kItems = 24;

/// Items 0..kItems-1 of every step, each a function of all items of the step before.
struct Work {
  std::vector<std::vector<std::int64_t>> items =
      std::vector<std::vector<std::int64_t>>(kSteps + 1, std::vector<std::int64_t>(kItems, 1));

  void take(std::int64_t step, int member, int members) {
    std::int64_t sum = 0;
    for (const std::int64_t x : items[static_cast<std::size_t>(step)]) sum = (sum * 31 + x) % 1000003;
    for (int i = kItems * member / members; i < kItems * (member + 1) / members; ++i)
      items[static_cast<std::size_t>(step) + 1][static_cast<std::size_t>(i)] = sum + i;
  }
};

void run(std::byte* shared, int tasks, int mine, Work& work) {
  Team team(shared, tasks);
  const auto body = [&](int what, std::int64_t step, int member, int members) {
    EXPECT_EQ(what, 1 + step % 3);
    work.take(step, member, members);
  };
  if (const int member = team.join(); member > 0) {
    team.help(member, body);
  } else {
    for (int k = 0; k < kSteps; ++k) team.together(1 + k % 3, k, body);
    team.end();
  }
  team.leave(mine);
}

TEST(Team, EveryStepSeesAllOfTheStepBefore) {
  alignas(64) std::byte shared[Team::bytes()] = {};
  Work expected;
  for (int k = 0; k < kSteps; ++k) expected.take(k, 0, 1);
  for (int round = 0; round < 60; ++round) {
    const int workers = 1 + round % 5, tasks = workers + round % 2;  // the last worker may have two tasks
    Work work;
    std::vector<std::thread> threads;
    for (int i = 0; i < workers; ++i) {
      threads.emplace_back([&, i] {
        if (round % 3 == 1) std::this_thread::sleep_for(std::chrono::microseconds(20 * i));  // some come late
        run(shared, tasks, i + 1 == workers ? tasks - i : 1, work);
      });
    }
    for (std::thread& t : threads) t.join();
    ASSERT_EQ(work.items, expected.items) << workers << " workers, round " << round;
    ASSERT_TRUE(std::all_of(std::begin(shared), std::end(shared), [](std::byte b) { return b == std::byte{0}; }))
        << "left no zeros";
  }
}

/// One thread has all tasks, one after the other: the first leads alone, the others find the end.
TEST(Team, TasksOfOneThread) {
  alignas(64) std::byte shared[Team::bytes()] = {};
  Work expected, work;
  for (int k = 0; k < kSteps; ++k) expected.take(k, 0, 1);
  for (int i = 0; i < 3; ++i) run(shared, 3, 1, work);
  EXPECT_EQ(work.items, expected.items);
}

}  // namespace
}  // namespace octavo::cpu
