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

#include "base/fork.h"
#include "engine/float_environment.h"
#include "region/host_kernel.h"

namespace octavo::engine {
namespace {

constexpr auto kSpin = std::chrono::microseconds(50);
constexpr int kMostPieces = 65535;

int tasks_of_piece(int tasks) {
  return (tasks - 1) / kMostPieces + 1;
}
int pieces_of(int tasks) {
  return tasks == 0 ? 0 : (tasks - 1) / tasks_of_piece(tasks) + 1;
}

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

ThreadPool::ThreadPool(int threads, std::shared_ptr<CoreLoad> load)
    : size_(threads),
      steals_(threads >= region::kSharingWorkers),
      load_(std::move(load)),
      shares_(new Share[static_cast<std::size_t>(threads)]),
      generation_(fork_generation()) {
  if (load_) load_->threads.fetch_add(size_, std::memory_order_relaxed);
}

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(int threads, std::shared_ptr<CoreLoad> load) {
  if (threads < 1) return fail(ErrorKind::usage, fmt::format("thread pool: {} threads asked for, needs at least 1", threads));
  std::unique_ptr<ThreadPool> pool(new ThreadPool(threads, std::move(load)));
  OCTAVO_CHECK(pool->start_workers());
  return pool;
}

Status ThreadPool::start_workers() {
  try {
    workers_.reserve(static_cast<std::size_t>(size_ - 1));
    for (int i = 1; i < size_; ++i) workers_.emplace_back(&ThreadPool::work, this, i);
  } catch (const std::system_error& e) {
    return fail(ErrorKind::io, fmt::format("thread pool: the system gave {} of {} threads ({}). Ask for fewer threads.",
                                           workers_.size() + 1, size_, e.what()));
  }
  return {};
}

/// In a forked child: no thread reads any of this any more, and nothing that names a thread or waits for one may be destroyed.
void ThreadPool::give_up_workers() {
  (void)sleep_.release();
  (void)new std::vector<std::thread>(std::move(workers_));
  workers_.clear();
}

Status ThreadPool::ready() {
  if (generation_ == fork_generation()) return {};
  if (size_ > 1) {
    give_up_workers();
    sleep_ = std::make_unique<Sleep>();
    job_.number.store({});
    pending_.store(0);
    sleepers_.store(0);
    caller_sleeps_.store(false);
    for (int i = 0; i < size_; ++i) shares_[static_cast<std::size_t>(i)].left.store({});
  }
  if (Status started = start_workers(); !started) {
    stop_workers();
    return started;  // the next call tries again
  }
  generation_ = fork_generation();
  return {};
}

void ThreadPool::stop_workers() {
  stop_.store(true);
  job_.number.store({job_.number.load().job + 1, 0});
  { const std::lock_guard lock(sleep_->mutex); }  // a worker between its test and its sleep holds the mutex: wait, then wake it
  sleep_->wake.notify_all();
  for (std::thread& t : workers_) t.join();
  workers_.clear();
  stop_.store(false);
}

ThreadPool::~ThreadPool() {
  if (generation_ != fork_generation()) {
    give_up_workers();
  } else {
    stop_workers();
  }
  if (load_) load_->threads.fetch_sub(size_, std::memory_order_relaxed);
}

/// What is left for `worker`, and the word that says so; false if nothing is, or the job is over.
bool ThreadPool::left_of(int worker, int pieces, std::uint32_t job, Left& seen, Left& left) const {
  seen = left = shares_[static_cast<std::size_t>(worker)].left.load(std::memory_order_acquire);
  const auto age = static_cast<std::int32_t>(job - seen.job);
  if (age < 0) return false;  // a later job has begun
  if (age > 0) {
    const int active = std::min(pieces, size_);
    left = {job, static_cast<std::uint16_t>(first_task(pieces, worker, active)),
            static_cast<std::uint16_t>(first_task(pieces, worker + 1, active))};
  }
  return left.begin < left.end;
}

/// Runs what is in the worker's own share; how many pieces.
int ThreadPool::run_own(int worker, int pieces, Number number) {
  int done = 0;
  Left seen, left;
  while (left_of(worker, pieces, number.job, seen, left)) {
    const int begin = left.begin, count = steals_ ? (left.end - begin + 1) / 2 : left.end - begin;
    left.begin = static_cast<std::uint16_t>(begin + count);
    if (!shares_[static_cast<std::size_t>(worker)].left.compare_exchange_strong(seen, left)) continue;
    const int each = tasks_of_piece(number.tasks);
    job_.call(job_.at, begin * each, std::min((begin + count) * each, number.tasks), worker);
    done += count;
  }
  return done;
}

/// Half of the largest share, at least one piece, becomes the worker's own; false if nothing is left.
bool ThreadPool::steal(int worker, int pieces, std::uint32_t job) {
  const int active = std::min(pieces, size_);
  for (;;) {
    int most = 0, victim = 0;
    Left seen, left;
    for (int i = 1; i < active; ++i) {
      const int other = (worker + i) % active;
      if (!left_of(other, pieces, job, seen, left) || left.end - left.begin <= most) continue;
      most = left.end - left.begin;
      victim = other;
    }
    if (most == 0) return false;
    if (!left_of(victim, pieces, job, seen, left)) continue;
    const auto middle = static_cast<std::uint16_t>(left.end - (left.end - left.begin + 1) / 2), end = left.end;
    left.end = middle;
    if (!shares_[static_cast<std::size_t>(victim)].left.compare_exchange_strong(seen, left)) continue;
    shares_[static_cast<std::size_t>(worker)].left.store({job, middle, end});  // was empty: nobody else writes it
    return true;
  }
}

void ThreadPool::finish(int pieces) {
  if (pending_.fetch_sub(pieces) != pieces || !caller_sleeps_.load()) return;
  { const std::lock_guard lock(sleep_->mutex); }
  sleep_->done.notify_one();
}

void ThreadPool::run_share(int worker, Number number) {
  const int pieces = pieces_of(number.tasks);
  if (worker >= std::min(pieces, size_)) return;
  do {
    if (const int done = run_own(worker, pieces, number); done > 0) finish(done);
  } while (steals_ && steal(worker, pieces, number.job));
}

void ThreadPool::dispatch(Call call, void* body, int tasks) {
  job_.call = call;
  job_.at = body;
  pending_.store(pieces_of(tasks), std::memory_order_relaxed);
  const Number number{job_.number.load(std::memory_order_relaxed).job + 1, tasks};
  // Sequentially consistent against the worker's "sleepers_ += 1; test number": one of the two sees the other's write.
  job_.number.store(number);
  if (sleepers_.load() > 0) {
    { const std::lock_guard lock(sleep_->mutex); }
    sleep_->wake.notify_all();
  }
  run_share(0, number);
  const auto finished = [this] { return pending_.load(std::memory_order_acquire) == 0; };
  if (finished() || (may_spin() && spin(finished))) return;
  std::unique_lock lock(sleep_->mutex);
  caller_sleeps_.store(true);
  sleep_->done.wait(lock, [this] { return pending_.load() == 0; });
  caller_sleeps_.store(false);
}

void ThreadPool::work(int worker) {
  const DefaultFloatEnvironment floats;  // threads inherit their creator's rounding and flush modes
  std::uint32_t seen = 0;
  for (;;) {
    const auto moved = [&] { return job_.number.load(std::memory_order_acquire).job != seen; };
    if (!moved() && !(may_spin() && spin(moved))) {
      std::unique_lock lock(sleep_->mutex);
      sleepers_.fetch_add(1);
      sleep_->wake.wait(lock, [&] { return job_.number.load().job != seen; });
      sleepers_.fetch_sub(1);
    }
    const Number number = job_.number.load(std::memory_order_acquire);  // jobs may have come and gone without this worker
    seen = number.job;
    if (stop_.load()) return;
    run_share(worker, number);
  }
}

}  // namespace octavo::engine
