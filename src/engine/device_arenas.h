// Arenas in the memory of other devices than the host, which the contexts of several engines of one model take for the time of a run: a new shape allocates
// nothing where one was large enough, and shapes that are kept hold no memory of the device.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/lease.h"
#include "region/device.h"

namespace octavo::engine {

/// As many arenas as there are runs at the same time, each as large as the largest shape that it has served. Any thread may take and give.
class DeviceArenas {
  struct Block {
    const region::Device* device = nullptr;
    std::size_t bytes = 0;
    std::unique_ptr<region::DeviceMemory> memory;
    [[nodiscard]] std::byte* address() const { return memory == nullptr ? nullptr : memory->address(); }
  };

 public:
  using Lease = engine::Lease<DeviceArenas, Block>;
  /// An idle arena of at least `bytes`, the one at `before` if it may be (captured launches name its address), or a new one in the place of the largest idle one. What it
  /// holds is of any earlier run. Errors: those of Device::allocate.
  [[nodiscard]] Result<Lease> take(const region::Device& device, std::size_t bytes, const std::byte* before);
  /// A run that needs `bytes` allocates nothing from now on, as far as the device has so much.
  void expect(const region::Device& device, std::size_t bytes);
  /// Gives idle arenas back to their devices.
  void trim();

 private:
  friend Lease;
  void give(Block block);
  std::vector<Block> idle_;  ///< under fork_safe_mutex(); the one that was given last is the last
};

}  // namespace octavo::engine
