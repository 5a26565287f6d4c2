#include "engine/device_arenas.h"

#include <algorithm>
#include <mutex>

#include "base/fork.h"

namespace octavo::engine {

Result<DeviceArenas::Lease> DeviceArenas::take(const region::Device& device, std::size_t bytes, const std::byte* before) {
  std::size_t wanted = bytes;
  Block gone;  // given back before the larger one is asked for, outside of the lock
  {
    const std::lock_guard lock(fork_safe_mutex());
    const auto fits = [&](const Block& b) { return b.device == &device && b.bytes >= bytes; };
    auto found =
        std::find_if(idle_.rbegin(), idle_.rend(), [&](const Block& b) { return fits(b) && b.memory->address() == before; });
    if (found == idle_.rend()) found = std::find_if(idle_.rbegin(), idle_.rend(), fits);
    if (found != idle_.rend()) {
      Block block = std::move(*found);
      idle_.erase(std::next(found).base());
      return Lease(this, std::move(block));
    }
    auto largest = idle_.end();
    for (auto b = idle_.begin(); b != idle_.end(); ++b) {
      if (b->device == &device && (largest == idle_.end() || b->bytes > largest->bytes)) largest = b;
    }
    if (largest != idle_.end()) {
      wanted = std::max(bytes, largest->bytes + largest->bytes / 2);  // shapes that grow allocate seldom
      gone = std::move(*largest);
      idle_.erase(largest);
    }
  }
  gone.memory.reset();
  auto memory = device.allocate(wanted);
  if (!memory && wanted > bytes) memory = device.allocate(wanted = bytes);
  if (!memory) return tl::unexpected<Error>(std::move(memory).error());
  return Lease(this, Block{&device, wanted, std::move(*memory)});
}

void DeviceArenas::expect(const region::Device& device, std::size_t bytes) {
  (void)take(device, bytes, nullptr);
}

void DeviceArenas::give(Block block) {
  const std::lock_guard lock(fork_safe_mutex());
  idle_.push_back(std::move(block));
}

void DeviceArenas::trim() {
  std::vector<Block> gone;  // declared first: devices free memory when the lock is free again
  const std::lock_guard lock(fork_safe_mutex());
  gone.swap(idle_);
}

}  // namespace octavo::engine
