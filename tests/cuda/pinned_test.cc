// Pinned memory of the host: taken, given back, and there before it is needed.
#include "cuda/device/pinned.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

namespace octavo::cuda {
namespace {

int pinned = 0, unpinned = 0;  // by the driver below

DriverApi counting_driver() {
  pinned = unpinned = 0;
  DriverApi api;
  api.pin = [](void** at, std::size_t bytes, unsigned) {
    ++pinned;
    *at = std::malloc(bytes);
    return *at == nullptr ? 2 : 0;
  };
  api.unpin = [](void* at) {
    ++unpinned;
    std::free(at);
    return 0;
  };
  return api;
}

void free_all(const std::vector<PinnedMemory::Block>& blocks) {
  for (const auto& b : blocks) std::free(b.at);
}

TEST(Pinned, WhatWasReservedIsTakenWithoutTheDriver) {
  const DriverApi api = counting_driver();
  PinnedMemory memory(api);
  constexpr std::array<std::size_t, 3> kMost{20 << 20, 300, 5 << 20};
  memory.reserve(kMost);
  EXPECT_EQ(pinned, 3);
  memory.reserve(kMost);  // of another plan of the range
  EXPECT_EQ(pinned, 3);
  for (const std::array<std::size_t, 3>& run : {kMost, {1, 1, 1}, {6 << 20, 300, 1 << 20}, {100, 200, 5 << 20}}) {
    std::vector<PinnedMemory::Block> taken;
    for (const std::size_t bytes : run) {
      taken.push_back(memory.take(bytes));
      EXPECT_GE(taken.back().bytes, bytes);
    }
    EXPECT_EQ(pinned, 3);
    for (const auto& b : taken) memory.give(b);
  }
  free_all({memory.take(20 << 20), memory.take(5 << 20), memory.take(1)});
  EXPECT_EQ(pinned, 3);
  EXPECT_EQ(unpinned, 0);
}

TEST(Pinned, MoreThanAQuarterOfWhatIsKeptIsNotReserved) {
  const DriverApi api = counting_driver();
  PinnedMemory memory(api);
  memory.reserve(std::array<std::size_t, 2>{200 << 20, 100 << 20});
  EXPECT_EQ(pinned, 0);
  free_all({memory.take(10)});
  EXPECT_EQ(pinned, 1);
}

}  // namespace
}  // namespace octavo::cuda
