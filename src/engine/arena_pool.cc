#include "engine/arena_pool.h"

#include <algorithm>
#include <mutex>
#include <new>

#include "base/fork.h"

namespace octavo::engine {

ArenaPool::Lease ArenaPool::take(std::size_t bytes) {
  AlignedBytes gone;  // grows, or is given back to the system before the larger one is asked for, outside of the lock
  std::size_t wanted = bytes;
  {
    const std::lock_guard lock(fork_safe_mutex());
    largest_ = std::max(largest_, bytes);
    const auto fits = std::find_if(idle_.begin(), idle_.end(), [&](const AlignedBytes& a) { return a.size() >= bytes; });
    if (fits != idle_.end()) {
      AlignedBytes found = std::move(*fits);
      idle_.erase(fits);
      return {this, std::move(found)};
    }
    if (!idle_.empty()) {
      gone = std::move(idle_.back());
      idle_.pop_back();
      held_ -= gone.size();
      const std::size_t grown = gone.size() + gone.size() / 2;
      wanted = std::max(bytes, most_ == 0 ? grown : std::min(grown, most_));
    }
    held_ += wanted;
  }
  if (gone.grow(wanted)) return {this, std::move(gone)};
  gone = AlignedBytes();
  try {
    return {this, AlignedBytes(wanted)};
  } catch (...) {
    const std::lock_guard lock(fork_safe_mutex());
    held_ -= wanted;
    throw;
  }
}

void ArenaPool::expect(std::size_t bytes) {
  AlignedBytes gone;
  {
    const std::lock_guard lock(fork_safe_mutex());
    const bool unused = largest_ == 0;
    if (!unused && !idle_.empty() && idle_.back().size() >= bytes) return;
    if (!unused && idle_.empty() && held_ >= bytes) return;  // runs have it
    if (unused && !idle_.empty() && idle_.back().size() == bytes) return;
    if (!idle_.empty()) {
      gone = std::move(idle_.back());
      idle_.pop_back();
      held_ -= gone.size();
    }
    held_ += bytes;
  }
  if (!gone.grow(bytes)) {
    gone = AlignedBytes();
    try {
      gone = AlignedBytes(bytes);
    } catch (const std::bad_alloc&) {
      const std::lock_guard lock(fork_safe_mutex());
      held_ -= bytes;
      return;
    }
  }
  give(std::move(gone));
}

void ArenaPool::give(AlignedBytes arena) {
  const std::lock_guard lock(fork_safe_mutex());
  const auto at = std::find_if(idle_.begin(), idle_.end(), [&](const AlignedBytes& a) { return a.size() >= arena.size(); });
  idle_.insert(at, std::move(arena));
}

void ArenaPool::trim() {
  std::vector<AlignedBytes> gone;  // declared first: the system gets memory back when the lock is free again
  const std::lock_guard lock(fork_safe_mutex());
  for (const AlignedBytes& a : idle_) held_ -= a.size();
  gone.swap(idle_);
}

std::size_t ArenaPool::held() const {
  const std::lock_guard lock(fork_safe_mutex());
  return held_;
}

std::size_t ArenaPool::largest() const {
  const std::lock_guard lock(fork_safe_mutex());
  return largest_;
}

}  // namespace octavo::engine
