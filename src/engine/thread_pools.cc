#include "engine/thread_pools.h"

#include <algorithm>
#include <mutex>

#include "base/fork.h"

namespace octavo::engine {

ThreadPools::ThreadPools() : load_(std::make_shared<CoreLoad>(cores_of_mask())) {}

Result<ThreadPools::Lease> ThreadPools::take(int threads) {
  {
    const std::lock_guard lock(fork_safe_mutex());
    const auto of_size = [&](const auto& pool) { return pool->size() == threads; };
    if (const auto found = std::find_if(idle_.rbegin(), idle_.rend(), of_size); found != idle_.rend()) {
      std::unique_ptr<ThreadPool> pool = std::move(*found);
      idle_.erase(std::next(found).base());
      pool->begin_use();
      return Lease(this, std::move(pool));
    }
  }
  OCTAVO_TRY(auto pool, ThreadPool::create(threads, load_));
  return Lease(this, std::move(pool));
}

void ThreadPools::give(std::unique_ptr<ThreadPool> pool) {
  pool->end_use();
  const std::lock_guard lock(fork_safe_mutex());
  idle_.push_back(std::move(pool));
}

void ThreadPools::trim() {
  std::vector<std::unique_ptr<ThreadPool>> gone;  // declared first: the threads end when the lock is free again
  const std::lock_guard lock(fork_safe_mutex());
  gone.swap(idle_);
}

}  // namespace octavo::engine
