// Arenas that the contexts of several engines of one model take for the time of a run, so that a new shape finds memory whose pages are there.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/aligned.h"
#include "engine/lease.h"

namespace octavo::engine {

/// As many arenas as there are runs at the same time, each as large as the largest shape that it has served. Any thread may take and give.
class ArenaPool {
 public:
  using Lease = engine::Lease<ArenaPool, AlignedBytes>;
  /// `most`: no arena grows beyond it unless a run needs more; 0: not known.
  explicit ArenaPool(std::size_t most = 0) : most_(most) {}

  /// An idle arena of at least `bytes`. Where none is large enough the largest idle one is replaced by one that is half as large again, so that growing
  /// shapes seldom meet new memory. What it holds is of any earlier run. Throws std::bad_alloc.
  [[nodiscard]] Lease take(std::size_t bytes);
  /// One idle arena of exactly `bytes`, whose pages are there, so that the first runs touch no new memory. An arena that this call made before, and that no run has had since,
  /// is replaced. Nothing happens where a run has one that is as large, or the system has no memory. Cost: the system zeroes the pages, 10 GB/s or, in a virtual
  /// machine that gets them from its host, 1 GB/s.
  void expect(std::size_t bytes);
  /// Gives idle arenas back to the system.
  void trim();

  [[nodiscard]] std::size_t held() const;     ///< bytes, of idle arenas and of those that runs have
  [[nodiscard]] std::size_t largest() const;  ///< bytes that one run has asked for so far, at most
  [[nodiscard]] std::size_t most() const { return most_; }

 private:
  friend Lease;
  void give(AlignedBytes arena);

  const std::size_t most_;
  // Under fork_safe_mutex():
  std::vector<AlignedBytes> idle_;  ///< the smallest first
  std::size_t held_ = 0, largest_ = 0;
};

}  // namespace octavo::engine
