// Arenas in the memory of other devices than the host, which the contexts of several engines of one model take for the time of a run: a new shape allocates
// nothing where one was large enough, and shapes that are kept hold no memory of the device.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "region/device.h"

namespace octavo::engine {

/// As many arenas as there are runs at the same time, each as large as the largest shape that it has served. Any thread may take and give.
class DeviceArenas {
  struct Block {
    const region::Device* device = nullptr;
    std::size_t bytes = 0;
    std::unique_ptr<region::DeviceMemory> memory;
  };

 public:
  /// What one run has until it ends on the device.
  class Lease {
   public:
    Lease() = default;
    Lease(DeviceArenas* from, Block block) : from_(from), block_(std::move(block)) {}
    Lease(Lease&& other) noexcept : from_(std::exchange(other.from_, nullptr)), block_(std::move(other.block_)) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(from_, other.from_), std::swap(block_, other.block_);
      return *this;
    }
    ~Lease() {
      if (from_ != nullptr && block_.memory != nullptr) from_->give(std::move(block_));
    }
    /// It is never given back: the device frees it with this object, when nothing uses it any more.
    void keep() { from_ = nullptr; }
    [[nodiscard]] std::byte* address() const { return block_.memory == nullptr ? nullptr : block_.memory->address(); }

   private:
    DeviceArenas* from_ = nullptr;
    Block block_;
  };

  /// An idle arena of at least `bytes`, the one at `before` if it may be (captured launches name its address), or a new one in the place of the largest idle one. What it
  /// holds is of any earlier run. Errors: those of Device::allocate.
  [[nodiscard]] Result<Lease> take(const region::Device& device, std::size_t bytes, const std::byte* before);
  /// A run that needs `bytes` allocates nothing from now on, as far as the device has so much.
  void expect(const region::Device& device, std::size_t bytes);
  /// Gives idle arenas back to their devices.
  void trim();

 private:
  void give(Block block);
  std::vector<Block> idle_;  ///< under fork_safe_mutex(); the one that was given last is the last
};

}  // namespace octavo::engine
