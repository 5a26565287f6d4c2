// Copies between the memory of a GPU and that of the host. A caller's memory is rarely pinned, and the driver copies such memory on one
// thread; here several threads copy between it and pinned memory while the GPU's copy engine moves what is there already.
#pragma once

#include <cstddef>
#include <vector>

#include "cuda/device/gpu.h"

namespace octavo::cuda {

/// Of one executor. Not for two threads at once. Pinned memory is taken for a run (device/pinned.h).
class HostCopies {
 public:
  explicit HostCopies(const Gpu& gpu) : gpu_(gpu), api_(gpu.api()) {}
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  /// A new run: nothing of the run before is under way any more.
  void begin() { give_back(); }
  /// Puts the copy into `stream`. `staged`: through pinned memory, if the host's memory is not pinned itself; then `from` may change when
  /// the call returns. Memory of the GPU that is passed as the host's is copied within the GPU.
  [[nodiscard]] Status to_gpu(CuAddress to, const std::byte* from, std::size_t bytes, CuStream stream, bool staged);
  /// Likewise; what goes through pinned memory is in `to` after `deliver`.
  [[nodiscard]] Status to_host(std::byte* to, CuAddress from, std::size_t bytes, CuStream stream, bool staged);
  /// Behind the end of the stream's work: what was staged reaches the host's memory.
  void deliver();

 private:
  struct Arrival {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
  };
  [[nodiscard]] std::byte* pinned(std::size_t bytes);
  [[nodiscard]] bool plain(const std::byte* at) const;
  void give_back();

  const Gpu& gpu_;
  const DriverApi& api_;
  std::vector<PinnedMemory::Block> blocks_;  ///< of this run
  std::vector<Arrival> arrivals_;
};

}  // namespace octavo::cuda
