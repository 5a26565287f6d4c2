// Memory for arenas, scratch and constants: 64-byte aligned, zero-filled, with 64 readable and writable bytes before and after.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

namespace octavo::engine {

inline constexpr std::size_t kAlignment = 64;  ///< of every buffer; also the slack on both sides
[[nodiscard]] constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Owns `bytes` bytes. Zero-filled: lanes that no kernel writes hold the same values in every run.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(std::size_t bytes) : size_(bytes) {
    const std::size_t total = round_up(bytes) + 2 * kAlignment;
    block_ = static_cast<std::byte*>(::operator new (total, std::align_val_t{kAlignment}));
    std::memset(block_, 0, total);
  }
  AlignedBytes(AlignedBytes&& other) noexcept
      : block_(std::exchange(other.block_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBytes& operator=(AlignedBytes&& other) noexcept {
    std::swap(block_, other.block_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~AlignedBytes() { ::operator delete (block_, std::align_val_t{kAlignment}); }

  [[nodiscard]] std::byte* data() const { return block_ == nullptr ? nullptr : block_ + kAlignment; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::byte* block_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace octavo::engine
