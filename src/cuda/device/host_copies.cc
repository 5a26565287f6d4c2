#include "cuda/device/host_copies.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

namespace octavo::cuda {
namespace {

constexpr std::size_t kPiece = std::size_t{2} << 20;  ///< bytes that one thread copies at a time
constexpr int kMostThreads = 8;
constexpr int kMemoryType = 2;  ///< CU_POINTER_ATTRIBUTE_MEMORY_TYPE; of memory that the driver does not know: 0

/// Calls `piece(offset, bytes)` for all of `bytes`, on several threads where there is much.
void in_pieces(std::size_t bytes, const std::function<void(std::size_t, std::size_t)>& piece) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t at = next.fetch_add(kPiece); at < bytes; at = next.fetch_add(kPiece)) piece(at, std::min(kPiece, bytes - at));
  };
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t count = std::min({bytes / kPiece, cores, static_cast<std::size_t>(kMostThreads)});
  std::vector<std::thread> others;
  for (std::size_t t = 1; t < count; ++t) others.emplace_back(work);
  work();
  for (std::thread& t : others) t.join();
}

}  // namespace

HostCopies::~HostCopies() {
  if (gpu_.enter()) give_back();
}

void HostCopies::give_back() {
  for (const PinnedMemory::Block& b : blocks_) gpu_.pinned().give(b);
  blocks_.clear();
}

/// Memory that the driver knows nothing of: neither pinned nor a GPU's.
bool HostCopies::plain(const std::byte* at) const {
  int attribute = kMemoryType, type = 0;
  void* into = &type;
  return api_.pointer_attributes(1, &attribute, &into, address(at)) != 0 || type == 0;
}

/// Null where no memory can be pinned: the driver then copies as it does for anybody.
std::byte* HostCopies::pinned(std::size_t bytes) {
  const PinnedMemory::Block b = gpu_.pinned().take(bytes);
  if (b.at != nullptr) blocks_.push_back(b);
  return b.at;
}

Status HostCopies::to_gpu(CuAddress to, const std::byte* from, std::size_t bytes, CuStream stream, bool staged) {
  if (!plain(from)) return api_.check(api_.copy_async(to, address(from), bytes, stream), "copying to the GPU");
  std::byte* stage = staged ? pinned(bytes) : nullptr;
  if (stage == nullptr) return api_.check(api_.to_device_async(to, from, bytes, stream), "copying to the GPU");
  std::atomic<int> failed{0};
  in_pieces(bytes, [&](std::size_t at, std::size_t size) {
    std::memcpy(stage + at, from + at, size);
    int code = gpu_.enter() ? 0 : 1;
    if (code == 0) code = api_.to_device_async(to + at, stage + at, size, stream);
    if (code != 0) failed = code;
  });
  return api_.check(failed, "copying to the GPU");
}

Status HostCopies::to_host(std::byte* to, CuAddress from, std::size_t bytes, CuStream stream, bool staged) {
  if (!plain(to)) return api_.check(api_.copy_async(address(to), from, bytes, stream), "copying from the GPU");
  std::byte* stage = staged ? pinned(bytes) : nullptr;
  if (stage == nullptr) return api_.check(api_.to_host_async(to, from, bytes, stream), "copying from the GPU");
  arrivals_.push_back({to, stage, bytes});
  return api_.check(api_.to_host_async(stage, from, bytes, stream), "copying from the GPU");
}

void HostCopies::deliver() {
  for (const Arrival& a : arrivals_) {
    in_pieces(a.bytes, [&](std::size_t at, std::size_t size) { std::memcpy(a.to + at, a.from + at, size); });
  }
  arrivals_.clear();
  give_back();
}

}  // namespace octavo::cuda
