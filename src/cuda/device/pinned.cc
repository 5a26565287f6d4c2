#include "cuda/device/pinned.h"

#include <algorithm>
#include <bit>

namespace octavo::cuda {

PinnedMemory::Block PinnedMemory::take(std::size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    auto best = free_.end();
    for (auto b = free_.begin(); b != free_.end(); ++b) {
      if (b->bytes >= bytes && (best == free_.end() || b->bytes < best->bytes)) best = b;
    }
    if (best != free_.end()) {
      const Block found = *best;
      free_.erase(best);
      bytes_ -= found.bytes;
      return found;
    }
  }
  if (bytes <= kMostFree / 4) bytes = std::bit_ceil(std::max(bytes, kLeast));  // shapes that grow pin again at each doubling alone
  void* at = nullptr;
  if (api_.pin(&at, bytes, 0) != 0) return {};
  return {static_cast<std::byte*>(at), bytes};
}

void PinnedMemory::reserve(std::span<const std::size_t> bytes) {
  std::size_t sum = 0;
  for (const std::size_t b : bytes) sum += std::bit_ceil(std::max(b, kLeast));
  if (sum > kMostFree / 4) return;
  std::vector<Block> taken;
  for (const std::size_t b : bytes) taken.push_back(take(b));
  for (const Block& b : taken) give(b);
}

void PinnedMemory::give(Block block) {
  if (block.at == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    if (bytes_ + block.bytes <= kMostFree) {
      free_.push_back(block);
      bytes_ += block.bytes;
      return;
    }
  }
  api_.unpin(block.at);
}

}  // namespace octavo::cuda
