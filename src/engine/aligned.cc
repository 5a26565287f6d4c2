#include "engine/aligned.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace octavo::engine {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kMapped = ~std::size_t{0};  // the heap's blocks have guarded ends
#else
constexpr std::size_t kMapped = std::size_t{4} << 20;
#endif

/// Pages from this one on. Both are wishes: without them pages come one by one when they are touched first.
void populate(void* at, std::size_t bytes) {
  (void)::madvise(at, bytes, MADV_HUGEPAGE);
#if defined(MADV_POPULATE_WRITE)
  (void)::madvise(at, bytes, MADV_POPULATE_WRITE);
#endif
}

/// Zeros, at the beginning of a page. Null: no memory.
std::byte* map(std::size_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  populate(at, bytes);
  return static_cast<std::byte*>(at);
}

}  // namespace

AlignedBytes::AlignedBytes(std::size_t bytes) : size_(bytes) {
  const std::size_t total = round_up(bytes) + 2 * kAlignment;
  if (total >= kMapped) {
    block_ = map(total);
    if (block_ == nullptr) throw std::bad_alloc();
    mapped_ = total;
    return;
  }
  block_ = static_cast<std::byte*>(::operator new (total, std::align_val_t{kAlignment}));
  std::memset(block_, 0, total);
}

bool AlignedBytes::grow(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  if (mapped_ == 0 || bytes <= size_) return false;
  const std::size_t total = round_up(bytes) + 2 * kAlignment;
  if (total > mapped_) {
    void* at = ::mremap(block_, mapped_, total, MREMAP_MAYMOVE);
    if (at == MAP_FAILED) return false;
    block_ = static_cast<std::byte*>(at);
    const std::size_t there = (mapped_ + kPage - 1) / kPage * kPage;
    mapped_ = total;
    if (there < total) populate(block_ + there, total - there);
  }
  size_ = bytes;
  return true;
}

AlignedBytes::~AlignedBytes() {
  if (mapped_ != 0) {
    ::munmap(block_, mapped_);
  } else {
    ::operator delete (block_, std::align_val_t{kAlignment});
  }
}

}  // namespace octavo::engine
