#include "engine/thread_pool.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <system_error>

#include "engine/float_environment.h"

namespace octavo::engine {
namespace {

constexpr auto kSpin = std::chrono::microseconds(50);

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Spins until `ready()` or about 50 us have passed; true if ready. The clock is read once in 64 turns: it costs as much as a turn.
template <class Ready>
bool spin(const Ready& ready) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

}  // namespace

int cores_of_quota(std::string_view cpu_max) {
  const std::string text(cpu_max);
  long long quota = 0, period = 0;
  if (std::sscanf(text.c_str(), "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0) return 0;  // "max 100000"
  return static_cast<int>(std::clamp<long long>((quota + period - 1) / period, 1, 1 << 16));
}

int available_cores() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);  // fails with more than 1024 processors
  // What a container may use (cgroup 2, seen from inside it): more threads would only be stopped in turns.
  std::string line;
  if (std::ifstream file("/sys/fs/cgroup/cpu.max"); std::getline(file, line)) {
    if (const int quota = cores_of_quota(line); quota > 0) cores = std::min(cores, quota);
  }
  return std::max(1, cores);
}

ThreadPool::ThreadPool(int threads, std::shared_ptr<CoreLoad> load) : size_(threads), load_(std::move(load)) {
  if (load_) load_->threads.fetch_add(size_, std::memory_order_relaxed);
}

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(int threads, std::shared_ptr<CoreLoad> load) {
  if (threads < 1) return fail(ErrorKind::usage, fmt::format("thread pool: {} threads asked for, needs at least 1", threads));
  std::unique_ptr<ThreadPool> pool(new ThreadPool(threads, std::move(load)));
  try {
    pool->workers_.reserve(static_cast<std::size_t>(threads - 1));
    for (int i = 1; i < threads; ++i) pool->workers_.emplace_back(&ThreadPool::work, pool.get(), i);
  } catch (const std::system_error& e) {
    return fail(ErrorKind::io, fmt::format("thread pool: the system gave {} of {} threads ({}). Ask for fewer threads.",
                                           pool->workers_.size() + 1, threads, e.what()));
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  job_.epoch.fetch_add(1);
  { const std::lock_guard lock(mutex_); }  // a worker between its test and its sleep holds the mutex: wait for it, then wake it
  wake_.notify_all();
  for (std::thread& t : workers_) t.join();
  if (load_) load_->threads.fetch_sub(size_, std::memory_order_relaxed);
}

void ThreadPool::run_share(int worker) const {
  const int active = std::min(job_.tasks, size_);
  if (worker >= active) return;
  job_.call(job_.at, first_task(job_.tasks, worker, active), first_task(job_.tasks, worker + 1, active), worker);
}

void ThreadPool::dispatch(Call call, void* body, int tasks) {
  job_.call = call;
  job_.at = body;
  job_.tasks = tasks;
  pending_.store(size_ - 1, std::memory_order_relaxed);
  // Sequentially consistent against the worker's "sleepers_ += 1; test epoch": one of the two sees the other's write.
  job_.epoch.fetch_add(1);
  if (sleepers_.load() > 0) {
    { const std::lock_guard lock(mutex_); }
    wake_.notify_all();
  }
  run_share(0);
  const auto finished = [this] { return pending_.load(std::memory_order_acquire) == 0; };
  if (finished() || (may_spin() && spin(finished))) return;
  std::unique_lock lock(mutex_);
  caller_sleeps_.store(true);
  done_.wait(lock, [this] { return pending_.load() == 0; });
  caller_sleeps_.store(false);
}

void ThreadPool::work(int worker) {
  const DefaultFloatEnvironment floats;  // threads inherit their creator's rounding and flush modes
  unsigned seen = 0;
  for (;;) {
    const auto moved = [&] { return job_.epoch.load(std::memory_order_acquire) != seen; };
    if (!moved() && !(may_spin() && spin(moved))) {
      std::unique_lock lock(mutex_);
      sleepers_.fetch_add(1);
      wake_.wait(lock, [&] { return job_.epoch.load() != seen; });
      sleepers_.fetch_sub(1);
    }
    ++seen;  // the caller waits for every worker, so exactly one job has been posted
    if (stop_.load()) return;
    run_share(worker);
    if (pending_.fetch_sub(1) == 1 && caller_sleeps_.load()) {
      { const std::lock_guard lock(mutex_); }
      done_.notify_one();
    }
  }
}

}  // namespace octavo::engine
