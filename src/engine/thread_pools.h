// Threads that the contexts of several engines of one model take for the time of a run: hundreds of shapes need no threads of their own, and the run of a new
// shape starts none.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/lease.h"
#include "engine/thread_pool.h"

namespace octavo::engine {

/// As many pools of a size as there are runs at the same time. Any thread may take and give.
class ThreadPools {
 public:
  using Lease = engine::Lease<ThreadPools, std::unique_ptr<ThreadPool>>;

  ThreadPools();
  /// An idle pool of so many threads, or a new one. Errors: those of ThreadPool::create.
  [[nodiscard]] Result<Lease> take(int threads);
  /// Ends the threads of idle pools.
  void trim();

 private:
  friend Lease;
  void give(std::unique_ptr<ThreadPool> pool);

  std::shared_ptr<CoreLoad> load_;                 ///< of the threads of runs; idle ones sleep
  std::vector<std::unique_ptr<ThreadPool>> idle_;  ///< under fork_safe_mutex()
};

}  // namespace octavo::engine
