// Threads that the contexts of several engines of one model take for the time of a run: hundreds of shapes need no threads of their own, and the run of a new
// shape starts none.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/thread_pool.h"

namespace octavo::engine {

/// As many pools of a size as there are runs at the same time. Any thread may take and give.
class ThreadPools {
 public:
  /// What one run has until it ends.
  class Lease {
   public:
    Lease() = default;
    Lease(ThreadPools* from, std::unique_ptr<ThreadPool> pool) : from_(from), pool_(std::move(pool)) {}
    Lease(Lease&& other) noexcept : from_(std::exchange(other.from_, nullptr)), pool_(std::move(other.pool_)) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(from_, other.from_), std::swap(pool_, other.pool_);
      return *this;
    }
    ~Lease() {
      if (from_ != nullptr && pool_ != nullptr) from_->give(std::move(pool_));
    }
    [[nodiscard]] ThreadPool* get() const { return pool_.get(); }

   private:
    ThreadPools* from_ = nullptr;
    std::unique_ptr<ThreadPool> pool_;
  };

  ThreadPools();
  /// An idle pool of so many threads, or a new one. Errors: those of ThreadPool::create.
  [[nodiscard]] Result<Lease> take(int threads);
  /// Ends the threads of idle pools.
  void trim();

 private:
  void give(std::unique_ptr<ThreadPool> pool);

  std::shared_ptr<CoreLoad> load_;                 ///< of the threads of runs; idle ones sleep
  std::vector<std::unique_ptr<ThreadPool>> idle_;  ///< under fork_safe_mutex()
};

}  // namespace octavo::engine
