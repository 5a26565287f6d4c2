// Pinned memory of the host, which all executors of a GPU take for a run and give back: pinning takes milliseconds, and contexts for many shapes run in turn.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include "cuda/device/driver_api.h"

namespace octavo::cuda {

class PinnedMemory {
 public:
  struct Block {
    std::byte* at = nullptr;
    std::size_t bytes = 0;
  };
  explicit PinnedMemory(const DriverApi& api) : api_(api) {}
  /// The least of the free blocks that are large enough, or a new one, of a power of two unless it is very large, with the GPU's context current. Null where no memory can be pinned.
  [[nodiscard]] Block take(std::size_t bytes);
  void give(Block block);
  /// Blocks for requests of so many bytes each at a time are free from now on, where they are at most a quarter of what is kept together. The GPU's context is current.
  void reserve(std::span<const std::size_t> bytes);

 private:
  static constexpr std::size_t kMostFree = std::size_t{1} << 30;  ///< bytes that are kept
  static constexpr std::size_t kLeast = std::size_t{1} << 16;     ///< bytes of a block
  const DriverApi& api_;
  std::mutex mutex_;
  std::vector<Block> free_;
  std::size_t bytes_ = 0;  ///< of free_
};

}  // namespace octavo::cuda
