#include "engine/thread_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <system_error>

#include "base/fork.h"
#include "engine/float_environment.h"
#include "engine/short_turns.h"
#include "engine/thread_place.h"
#include "region/host_kernel.h"

namespace octavo::engine {
namespace {

using Clock = std::chrono::steady_clock;

// A thread that finds nothing to do spins for the first, looks whether it waits for a worker that has lost its core, and spins for the second.
constexpr auto kSpin = std::chrono::microseconds(40), kLook = std::chrono::microseconds(10);
constexpr int kMostPieces = 65535;
/// For so many jobs after a worker had lost its core, two workers take their shares in halves too: what one has not begun, the other can take.
constexpr int kContested = 2000;

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

/// Spins until `ready()` or the time has passed; true if ready. The clock is read once in 64 turns: it costs as much as a turn.
template <class Ready>
bool spin(const Ready& ready, Clock::duration time) {
  const auto end = Clock::now() + time;
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      relax();
    }
  } while (Clock::now() < end);
  return ready();
}

}  // namespace

ThreadPool::ThreadPool(int threads, std::shared_ptr<CoreLoad> load)
    : size_(threads),
      halves_(threads >= region::kSharingWorkers),
      load_(std::move(load)),
      shares_(new Share[static_cast<std::size_t>(threads)]),
      generation_(fork_generation()) {
  begin_use();
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

/// In a forked child: no thread reads any of this any more, and nothing that names a thread may be destroyed.
void ThreadPool::give_up_workers() {
  (void)new std::vector<std::thread>(std::move(workers_));
  workers_.clear();
}

Status ThreadPool::ready() {
  if (generation_ == fork_generation()) return {};
  if (size_ > 1) {
    give_up_workers();
    job_.number.store({});
    pending_.store(0);
    sleepers_.store(0);
    for (int i = 0; i < size_; ++i) {
      Share& share = shares_[static_cast<std::size_t>(i)];
      share.left.store({});
      share.runs.store(false);
    }
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
  wake_sleepers();
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
  end_use();
}

/// The rest of the share of `worker`, and the word that holds it; false if there is none, or if the job is over.
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
  const bool halves = halves_ || contested_.load(std::memory_order_relaxed) > 0;
  while (left_of(worker, pieces, number.job, seen, left)) {
    const int begin = left.begin, count = halves ? (left.end - begin + 1) / 2 : left.end - begin;
    left.begin = static_cast<std::uint16_t>(begin + count);
    if (!shares_[static_cast<std::size_t>(worker)].left.compare_exchange_strong(seen, left)) continue;
    const int each = tasks_of_piece(number.tasks);
    job_.call(job_.at, static_cast<int>(number.job - job_.first), begin * each, std::min((begin + count) * each, number.tasks),
              worker);
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

/// Pieces of a job are done. The worker that does the last one begins the next job of the list.
void ThreadPool::finish(int pieces, std::uint32_t job, int worker) {
  if (pending_.fetch_sub(pieces) == pieces) begin_job(static_cast<int>(job - job_.first) + 1, worker);
}

void ThreadPool::run_share(int worker, Number number) {
  const int pieces = pieces_of(number.tasks);
  if (worker >= std::min(pieces, size_)) return;
  Share& own = shares_[static_cast<std::size_t>(worker)];
  own.core.store(current_core(), std::memory_order_relaxed);
  do {
    own.runs.store(true, std::memory_order_relaxed);
    const int done = run_own(worker, pieces, number);
    own.runs.store(false, std::memory_order_relaxed);
    if (done > 0) finish(done, number.job, worker);
  } while (steal(worker, pieces, number.job));
}

/// Threads that counted themselves among the sleepers before the bell rang wake up or do not fall asleep. They are counted out here:
/// one that is woken but gets no core yet costs the next jobs nothing.
void ThreadPool::wake_sleepers() {
  if (sleepers_.load() == 0 || sleepers_.exchange(0) == 0) return;
  bell_.fetch_add(1);
  bell_.notify_all();
}

/// Everything before job `index` of the list is done: runs jobs of one task, and publishes the next that has more, or the end.
void ThreadPool::begin_job(int index, int worker) {
  Number number{job_.first + static_cast<std::uint32_t>(list_.jobs), 0};
  std::atomic<bool>& runs = shares_[static_cast<std::size_t>(worker)].runs;
  for (; index < list_.jobs; ++index) {
    const int tasks = list_.tasks_of(list_.at, index);
    if (tasks > 1) {
      number = {job_.first + static_cast<std::uint32_t>(index), tasks};
      pending_.store(pieces_of(tasks), std::memory_order_relaxed);
      break;
    }
    if (tasks <= 0) continue;
    runs.store(true, std::memory_order_relaxed);
    job_.call(job_.at, index, 0, tasks, worker);
    runs.store(false, std::memory_order_relaxed);
  }
  job_.publisher.store({static_cast<std::int16_t>(worker), static_cast<std::int16_t>(current_core())}, std::memory_order_relaxed);
  if (const int left = contested_.load(std::memory_order_relaxed); left > 0) contested_.store(left - 1, std::memory_order_relaxed);
  // Sequentially consistent against the sleeper's "sleepers_ += 1; test number": one of the two sees the other's write.
  job_.number.store(number);
  wake_sleepers();
}

void ThreadPool::dispatch(Call call, void* body, const List& list) {
  if (caller_ != std::this_thread::get_id()) {
    caller_ = std::this_thread::get_id();
    ask_for_short_turns();
  }
  std::uint32_t seen = job_.number.load(std::memory_order_relaxed).job;
  job_.call = call;
  job_.at = body;
  job_.first = seen + 1;
  list_ = list;
  begin_job(0, 0);
  for (;;) {
    const Number number = job_.number.load(std::memory_order_acquire);
    if (number.tasks == 0) return;
    seen = number.job;
    run_share(0, number);
    wait_for_job(seen, 0);
  }
}

/// The system's number of a worker that has tasks of the job in hand and that nobody looked at in this job; 0: none.
int ThreadPool::late_worker(std::uint32_t job, int worker) {
  for (int i = 1; i < size_; ++i) {
    const int other = (worker + i) % size_;
    Share& share = shares_[static_cast<std::size_t>(other)];
    if (other != 0 && share.runs.load(std::memory_order_relaxed) && share.asked.exchange(job) != job) return share.thread.load();
  }
  return 0;
}

/// Returns when there is another job than `seen`.
void ThreadPool::wait_for_job(std::uint32_t seen, int worker) {
  const auto moved = [&] { return job_.number.load(std::memory_order_acquire).job != seen; };
  if (moved()) return;
  if (may_spin()) {
    if (spin(moved, kSpin)) return;
    // A worker whose processor time stands still has lost its core in the middle of a task. This thread is about to sleep: the worker can go on
    // here at once, where it would have to wait for the next tick, up to 4 ms.
    const int late = late_worker(seen, worker);
    const std::int64_t before = late == 0 ? -1 : processor_time(late);
    if (spin(moved, kLook)) return;
    if (before >= 0 && processor_time(late) == before && bring_here(late)) {
      brought_.fetch_add(1, std::memory_order_relaxed);
      contested_.store(kContested, std::memory_order_relaxed);
    }
  }
  while (!moved()) {
    // The bell first: whoever counts this thread out rings after that, so the wait ends. Read later, it could be the bell that has rung
    // already, and the thread would sleep without being counted.
    const std::uint32_t rung = bell_.load();
    sleepers_.fetch_add(1);
    if (job_.number.load().job != seen) return;
    bell_.wait(rung);
  }
}

/// Two threads of a pool on one core get half of it each, or less, while a busy process keeps a whole core. The system leaves it at that: it sees
/// two threads on one core and one on the other, and so as many as before if it moved one.
void ThreadPool::leave_shared_core(int worker) {
  const Publisher by = job_.publisher.load(std::memory_order_relaxed);
  const int here = current_core();
  if (by.worker == worker || by.core != here || here < 0 || !may_spin()) return;
  std::array<int, 256> taken{};  // of larger pools, the cores of the first
  const int count = std::min<int>(size_, static_cast<int>(taken.size()));
  for (int i = 0; i < count; ++i)
    taken[static_cast<std::size_t>(i)] =
        i == worker ? here : shares_[static_cast<std::size_t>(i)].core.load(std::memory_order_relaxed);
  if (leave_cores({taken.data(), static_cast<std::size_t>(count)})) left_cores_.fetch_add(1, std::memory_order_relaxed);
}

void ThreadPool::work(int worker) {
  const DefaultFloatEnvironment floats;  // threads inherit their creator's rounding and flush modes
  ask_for_short_turns();
  shares_[static_cast<std::size_t>(worker)].thread.store(current_thread());
  std::uint32_t seen = 0;
  for (;;) {
    wait_for_job(seen, worker);
    const Number number = job_.number.load(std::memory_order_acquire);  // jobs may have come and gone without this worker
    seen = number.job;
    if (stop_.load()) return;
    if (number.tasks > 0) leave_shared_core(worker);
    run_share(worker, number);
  }
}

}  // namespace octavo::engine
