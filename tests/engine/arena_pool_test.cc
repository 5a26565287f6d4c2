// Arenas that runs of several engines share.
#include "engine/arena_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

namespace octavo::engine {
namespace {

TEST(ArenaPool, OneRunAtATimeHasOneArenaOfTheLargest) {
  ArenaPool pool(10000);
  for (const std::size_t bytes : {1000U, 200U, 1000U}) {
    const auto lease = pool.take(bytes);
    EXPECT_EQ(pool.held(), 1000U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(lease->data()) % kAlignment, 0U);
  }
  { const auto grown = pool.take(1100); }
  EXPECT_EQ(pool.held(), 1500U);  // half as large again
  { const auto grown = pool.take(9000); }
  EXPECT_EQ(pool.held(), 9000U);
  { const auto grown = pool.take(9001); }
  EXPECT_EQ(pool.held(), 10000U);  // no larger than the range wants
  { const auto grown = pool.take(20000); }
  EXPECT_EQ(pool.held(), 20000U);  // but what a run wants
  EXPECT_EQ(pool.largest(), 20000U);
  pool.trim();
  EXPECT_EQ(pool.held(), 0U);
}

TEST(ArenaPool, RunsAtTheSameTimeHaveArenasOfTheirOwn) {
  ArenaPool pool;
  {
    const auto a = pool.take(1000), b = pool.take(500);
    EXPECT_NE(a->data(), b->data());
    EXPECT_EQ(pool.held(), 1500U);
  }
  const auto small = pool.take(400);  // the smallest that is large enough
  const auto large = pool.take(900);
  EXPECT_EQ(pool.held(), 1500U);
}

TEST(ArenaPool, WhatIsExpectedIsThere) {
  ArenaPool pool(std::size_t{1} << 30);
  pool.expect(5000);
  EXPECT_EQ(pool.held(), 5000U);
  EXPECT_EQ(pool.largest(), 0U);  // no run has asked for it
  pool.expect(3000);              // before the first run the last word counts
  EXPECT_EQ(pool.held(), 3000U);
  { const auto lease = pool.take(2000); }
  EXPECT_EQ(pool.held(), 3000U);
  pool.expect(2500);  // what runs have had stays
  EXPECT_EQ(pool.held(), 3000U);
  pool.expect(6000);
  EXPECT_EQ(pool.held(), 6000U);
  {
    const auto lease = pool.take(6000);
    pool.expect(4000);  // a run has one that is as large
    EXPECT_EQ(pool.held(), 6000U);
  }
  pool.trim();
  EXPECT_EQ(pool.held(), 0U);
  pool.expect(std::size_t{8} << 20);
  pool.expect(std::size_t{16} << 20);
  EXPECT_EQ(pool.held(), std::size_t{16} << 20);
  { const auto lease = pool.take(std::size_t{16} << 20); }
  EXPECT_EQ(pool.held(), std::size_t{16} << 20);
}

TEST(ArenaPool, ALargeArenaGrowsWithItsPages) {
  AlignedBytes small(1000);
  EXPECT_FALSE(small.grow(2000));  // of the heap
  EXPECT_EQ(small.size(), 1000U);
  AlignedBytes a(std::size_t{8} << 20);
  for (std::size_t i = 0; i < a.size(); i += 4096) a.data()[i] = std::byte{7};
  EXPECT_FALSE(a.grow(a.size()));
#if !defined(__SANITIZE_ADDRESS__)
  for (const std::size_t bytes : {(std::size_t{8} << 20) + 1, (std::size_t{12} << 20) + 777, std::size_t{100} << 20}) {
    const std::size_t before = a.size();
    ASSERT_TRUE(a.grow(bytes));
    EXPECT_EQ(a.size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % kAlignment, 0U);
    for (std::size_t i = 0; i < std::size_t{8} << 20; i += 4096) ASSERT_EQ(a.data()[i], std::byte{7}) << i;
    for (std::size_t i = before + kAlignment; i < bytes; i += 4096) ASSERT_EQ(a.data()[i], std::byte{0}) << i;
    a.data()[bytes - 1] = std::byte{0};
    a.data()[bytes + kAlignment - 1] = std::byte{0};  // the slack is there
  }
#endif
}

TEST(ArenaPool, FourThreads) {
  ArenaPool pool(std::size_t{8} << 20);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 200; ++i) {
        const std::size_t bytes = std::size_t{1} << (random() % 23);
        const auto lease = pool.take(bytes);
        std::memset(lease->data(), t, bytes);
        std::this_thread::yield();
        wrong += lease->data()[0] == std::byte(t) && lease->data()[bytes - 1] == std::byte(t) ? 0 : 1;
        if (i % 50 == 0) pool.trim();
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0);
  pool.trim();
  EXPECT_EQ(pool.held(), 0U);
}

/// Blocks large enough for pages of their own are zeros, and can be written from end to end and beyond by the slack.
TEST(AlignedBytes, LargeBlocksAreZeros) {
  const std::size_t bytes = (std::size_t{5} << 20) + 3;
  AlignedBytes block(bytes);
  for (std::size_t i = 0; i < bytes; i += 4093) ASSERT_EQ(block.data()[i], std::byte{0});
  std::memset(block.data() - kAlignment, 1, bytes + 2 * kAlignment);
  AlignedBytes other(64);
  other = std::move(block);
  EXPECT_EQ(other.size(), bytes);
  EXPECT_EQ(other.data()[bytes - 1], std::byte{1});
}

}  // namespace
}  // namespace octavo::engine
