// Runs of counted regions take the least kernel that has room for the count, and of its tasks those that compute an element that counts.
#include "region/counted_tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "engine/host_executor.h"
#include "region/counted.h"

namespace octavo::engine {
namespace {

/// Task t computes two elements, from first[t] on.
class Pairs final : public region::HostKernel, public region::CountedTasks {
 public:
  Pairs(std::vector<std::int64_t> first, std::vector<std::atomic<int>>& done) : first_(std::move(first)), done_(done) {}
  [[nodiscard]] int tasks() const override { return static_cast<int>(first_.size()); }
  [[nodiscard]] std::int64_t first_element(int task, int dim, std::int64_t) const override {
    return dim == 0 ? first_[static_cast<std::size_t>(task)] : 0;
  }
  void run(const region::Memory&, int begin, int end, const region::Worker&) const override {
    for (int t = begin; t < end; ++t) {
      for (const std::int64_t e : {0, 1}) ++done_[static_cast<std::size_t>(first_[static_cast<std::size_t>(t)] + e)];
    }
  }

 private:
  std::vector<std::int64_t> first_;
  std::vector<std::atomic<int>>& done_;
};

TEST(CountedTasks, OnlyThoseRunThatComputeAnElementThatCounts) {
  constexpr std::int64_t kRoom = 12, kShort = 8;
  region::Plan plan;
  region::Region& r = plan.regions.emplace_back();
  region::Stage& s = r.stages.emplace_back();
  s.space = {kRoom};
  s.counted = 0;
  r.count = 0;
  ASSERT_EQ(region::room_of(r), kRoom);
  const std::vector<std::vector<std::int64_t>> orders{{0, 2, 4, 6, 8, 10},
                                                      {0, 4, 8, 2, 6, 10}};  // of rows; of parts with all rows each
  for (const auto& order : orders) {
    std::vector<std::atomic<int>> done(kRoom);
    const Pairs whole(order, done);
    std::vector<std::int64_t> few;
    std::copy_if(order.begin(), order.end(), std::back_inserter(few), [&](std::int64_t e) { return e < kShort; });
    ShorterKernels shorter;
    shorter.push_back({kShort, std::make_unique<Pairs>(few, done)});
    for (const int threads : {1, 2, 3}) {
      const auto executor = HostExecutor::create(plan, {&whole}, {&shorter}, threads, nullptr);
      ASSERT_TRUE(executor) << executor.error().message;
      for (std::int64_t count = 0; count <= kRoom; ++count) {
        for (auto& d : done) d = 0;
        region::Memory memory;
        memory.base = {reinterpret_cast<std::byte*>(&count)};
        ASSERT_TRUE((*executor)->start(0, 1, memory, nullptr));
        const std::int64_t end = (count + 1) / 2 * 2;
        for (std::int64_t e = 0; e < kRoom; ++e)
          EXPECT_EQ(done[static_cast<std::size_t>(e)], e < end ? 1 : 0)
              << "element " << e << " of " << count << ", threads " << threads;
        EXPECT_EQ((*executor)->computed(0), count > kRoom - 2 ? -1 : end) << count;
      }
      (*executor)->compute_all();
      for (auto& d : done) d = 0;
      std::int64_t count = 3;
      region::Memory memory;
      memory.base = {reinterpret_cast<std::byte*>(&count)};
      ASSERT_TRUE((*executor)->start(0, 1, memory, nullptr));
      EXPECT_TRUE(std::all_of(done.begin(), done.end(), [](const auto& d) { return d == 1; }));
    }
  }
}

}  // namespace
}  // namespace octavo::engine
