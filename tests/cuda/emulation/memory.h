// The memory that an emulated kernel may touch, and what is known about each byte of it: who wrote it last and when, who read it,
// whether a copy into it is under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace octavo::testing {

/// When and by whom: blocks and threads by linear number, `interval` counts the block's barriers, `warp_interval` the __syncwarps of
/// the thread's warp.
struct Moment {
  int block = -1, thread = -1, interval = 0, warp_interval = 0;
  bool operator==(const Moment&) const = default;
};

/// Are both moments of one block, of different threads, and is neither behind a barrier of the other?
[[nodiscard]] bool unordered(const Moment& a, const Moment& b);

struct Byte {
  enum class State : std::uint8_t { untouched, ready, copying, atomic };
  Moment writer, reader;
  /// Besides `reader`, in its interval: lanes of its warp since their last __syncwarp; other warps.
  bool other_lanes = false, other_warps = false;
  State state = State::untouched;
  bool operator==(const Byte&) const = default;
};

/// A buffer in global memory, or the shared memory of a block.
class Range {
 public:
  Range(std::string name, std::byte* data, std::size_t bytes, bool writable, bool shared)
      : name_(std::move(name)),
        data_(data),
        bytes_(bytes),
        writable_(writable),
        shared_(shared),
        words_(writable ? (bytes + kWord - 1) / kWord : 0),
        split_(words_.size()) {}
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] bool shared() const { return shared_; }
  [[nodiscard]] bool holds(const void* p, std::size_t n) const {
    const auto* at = static_cast<const std::byte*>(p);
    return at >= data_ && at + n <= data_ + bytes_;
  }
  void forget();  ///< shared: a new block; global: a new launch

  /// "" or what is wrong. `released[b]`: the last interval of block b in which it made an atomic operation, -1 if none.
  [[nodiscard]] std::string read(std::size_t at, std::size_t n, const Moment& now, const std::vector<int>& released);
  [[nodiscard]] std::string write(std::size_t at, std::size_t n, const Moment& now, const std::vector<int>& released);
  [[nodiscard]] std::string atomic(std::size_t at, std::size_t n, const Moment& now);
  /// A copy into the bytes begins; it must have been checked as a write.
  void copying(std::size_t at, std::size_t n);
  /// It is complete for the thread.
  void copied(std::size_t at, std::size_t n, const Moment& now);

 private:
  static constexpr std::size_t kWord = 4;
  [[nodiscard]] std::string place(std::size_t at, const char* doing, const Moment& now) const;
  /// Calls visit(what is known, byte) for each byte or whole word of the access, in order, until it returns false.
  template <class Visit>
  void each(std::size_t at, std::size_t n, Visit visit);

  std::string name_;
  std::byte* data_;
  std::size_t bytes_;
  bool writable_, shared_;
  // Most accesses are of whole words, whose bytes then have one history. None for what kernels only read.
  std::vector<Byte> words_;           ///< of each word that is not split
  std::vector<Byte> apart_;           ///< the bytes of split words; none until there is one
  std::vector<unsigned char> split_;  ///< is it?
};

/// Global memory: buffers far apart in one reserved stretch of addresses, so that an address outside of every buffer is known as such.
class GlobalMemory {
 public:
  GlobalMemory();
  ~GlobalMemory();
  GlobalMemory(const GlobalMemory&) = delete;
  GlobalMemory& operator=(const GlobalMemory&) = delete;
  /// 256-byte aligned. Pages around it cannot be touched; the bytes that fill its last page are known not to be its own.
  std::byte* allocate(std::string name, std::size_t bytes, bool writable);
  [[nodiscard]] Range* find(const void* p);          ///< that begins at or before p and is nearest; null: none
  [[nodiscard]] bool reserves(const void* p) const;  ///< within the stretch
  [[nodiscard]] std::vector<Range>& ranges() { return ranges_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
  std::vector<Range> ranges_;  ///< by address
};

}  // namespace octavo::testing
