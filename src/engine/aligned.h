// Memory for arenas, scratch and constants: 64-byte aligned, zero-filled, with 64 readable and writable bytes before and after.
#pragma once

#include <cstddef>
#include <utility>

namespace octavo::engine {

inline constexpr std::size_t kAlignment = 64;  ///< of every buffer; also the slack on both sides
[[nodiscard]] constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Owns `bytes` bytes. Zero-filled: lanes that no kernel writes hold the same values in every run. Pages of large blocks are there afterwards: huge
/// ones where the system has them.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  /// Throws std::bad_alloc.
  explicit AlignedBytes(std::size_t bytes);
  AlignedBytes(AlignedBytes&& other) noexcept
      : block_(std::exchange(other.block_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        mapped_(std::exchange(other.mapped_, 0)) {}
  AlignedBytes& operator=(AlignedBytes&& other) noexcept {
    std::swap(block_, other.block_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
    return *this;
  }
  ~AlignedBytes();
  /// `bytes` bytes, more than now, of which the first ones keep their contents and their pages, wherever they are then: only the others are asked for. False, and nothing
  /// has changed, for a block that is not large.
  [[nodiscard]] bool grow(std::size_t bytes);

  [[nodiscard]] std::byte* data() const { return block_ == nullptr ? nullptr : block_ + kAlignment; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::byte* block_ = nullptr;
  std::size_t size_ = 0;
  std::size_t mapped_ = 0;  ///< bytes of a mapping of its own; 0: from the heap
};

}  // namespace octavo::engine
