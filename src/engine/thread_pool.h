// A persistent pool of worker threads: one for each context. The calling thread is worker 0. Every worker has a share of the tasks that is
// the same in every run. A worker without tasks takes tasks that others have not begun (docs/threads.md).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/cores.h"

namespace octavo::engine {

/// How many threads of the contexts that share this object exist now. Pools stop spinning while it exceeds `cores`: a spinning
/// worker would take the core from one that has work. Thread-safe.
struct CoreLoad {
  explicit CoreLoad(int core_count) : cores(core_count) {}
  const int cores;
  std::atomic<int> threads{0};
  [[nodiscard]] bool crowded() const { return threads.load(std::memory_order_relaxed) > cores; }
};

/// Workers spin for about 50 us after a job, then sleep. `run` must be called by one thread at a time; a pool of size 1 has no
/// thread of its own and calls the body directly. Nothing is allocated after creation. The body must not throw and must not call
/// `run`. A job is done when its tasks are done; it does not wait for a worker that slept or lost its core and found no task left. All
/// threads of a pool, the caller too, ask the system for short time slices (engine/short_turns.h). Where other processes use the cores too,
/// workers leave a core that another thread of the pool is on, and a worker that lost its core in the middle of a task is brought to the
/// core of a thread that waits for it (engine/thread_place.h). The calling thread is never moved.
/// A forked child has none of the threads: `ready` starts new ones there.
class ThreadPool {
 public:
  /// `threads` >= 1, the caller included. Fails with `usage` below 1 and with `io` when the system refuses a thread.
  [[nodiscard]] static Result<std::unique_ptr<ThreadPool>> create(int threads, std::shared_ptr<CoreLoad> load = nullptr);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int size() const { return size_; }

  /// How often workers were moved to another core so far: away from one that the pool uses already, or to a thread that waits for them.
  [[nodiscard]] long left_cores() const { return left_cores_.load(std::memory_order_relaxed); }
  [[nodiscard]] long brought() const { return brought_.load(std::memory_order_relaxed); }

  /// Before `run`, in a process that may have been forked since the last: starts the workers again if they were left behind in the
  /// parent. Cost: one load where nothing has to be done. Fails with `io` when the system refuses a thread.
  [[nodiscard]] Status ready();

  /// Its threads do not count in CoreLoad between `end_use` and `begin_use`: nobody runs anything. A new pool is in use.
  void begin_use() {
    if (load_ && !std::exchange(counted_, true)) load_->threads.fetch_add(size_, std::memory_order_relaxed);
  }
  void end_use() {
    if (load_ && std::exchange(counted_, false)) load_->threads.fetch_sub(size_, std::memory_order_relaxed);
  }

  /// The first task of worker i, of the `active` that have any.
  [[nodiscard]] static int first_task(int tasks, int i, int active) {
    return static_cast<int>(static_cast<std::int64_t>(tasks) * i / active);
  }

  /// Calls body(begin, end, worker) so that the ranges cover 0..tasks-1 once; worker is in 0..k-1, k = min(tasks, size), and is one
  /// thread. The share of worker i is [tasks*i/k, tasks*(i+1)/k). With one or two workers, each gets its share in one call. With more, a worker takes half of the
  /// rest of its share at a time, from the front. A worker without a rest takes half of the largest rest, from its back. Returns
  /// when all tasks are done; the caller then sees all writes of the workers.
  template <class Body>
  void run(int tasks, Body&& body) {
    if (size_ == 1 || tasks <= 1) {
      if (tasks > 0) body(0, tasks, 0);
      return;
    }
    using Plain = std::remove_cvref_t<Body>;
    const Call call = [](void* p, int, int begin, int end, int worker) { (*static_cast<Plain*>(p))(begin, end, worker); };
    const TasksOf same = [](const void* p, int) { return *static_cast<const int*>(p); };
    void* const at = const_cast<void*>(static_cast<const void*>(std::addressof(body)));
    if constexpr (std::is_trivially_copyable_v<Plain> && sizeof(Plain) <= kInline && alignof(Plain) <= alignof(void*)) {
      std::memcpy(job_.body, at, sizeof(Plain));  // beside the number: one line goes to the other core instead of two
      dispatch(call, job_.body, {same, &tasks, 1});
    } else {
      dispatch(call, at, {same, &tasks, 1});
    }
  }

  /// Runs jobs 0..jobs-1 in order, each of tasks(job) tasks, as `run` does: body(job, begin, end, worker). The worker that ends a job begins the next,
  /// so a caller that has lost its core stops the others only if it is in the middle of a task. A job of one task is run by the worker that
  /// ended the job before.
  template <class Tasks, class Body>
  void run_all(int jobs, const Tasks& tasks, const Body& body) {
    if (size_ == 1) {
      for (int j = 0; j < jobs; ++j) {
        if (const int n = tasks(j); n > 0) body(j, 0, n, 0);
      }
      return;
    }
    const Call call = [](void* p, int job, int begin, int end, int worker) {
      (*static_cast<const Body*>(p))(job, begin, end, worker);
    };
    const TasksOf of = [](const void* p, int job) { return (*static_cast<const Tasks*>(p))(job); };
    dispatch(call, const_cast<void*>(static_cast<const void*>(std::addressof(body))), {of, std::addressof(tasks), jobs});
  }

 private:
  using Call = void (*)(void*, int job, int begin, int end, int worker);
  using TasksOf = int (*)(const void*, int job);

  /// The jobs of one call of run_all. The worker that ends a job reads it.
  struct List {
    TasksOf tasks_of = nullptr;
    const void* at = nullptr;
    int jobs = 0;
  };

  /// A job's number and tasks, in one word. Numbers wrap.
  struct Number {
    std::uint32_t job = 0;
    std::int32_t tasks = 0;
  };
  /// The rest of a worker's share, in pieces of Number::tasks / 65535 tasks (one task, up to 65535). If the job is an earlier one, the whole share is left.
  struct Left {
    std::uint32_t job = 0;
    std::uint16_t begin = 0, end = 0;
  };

  explicit ThreadPool(int threads, std::shared_ptr<CoreLoad> load);
  Status start_workers();
  void give_up_workers();
  void stop_workers();
  void dispatch(Call call, void* body, const List& list);
  void begin_job(int index, int worker);
  void work(int worker);
  void run_share(int worker, Number number);
  bool left_of(int worker, int pieces, std::uint32_t job, Left& seen, Left& left) const;
  int run_own(int worker, int pieces, Number number);
  bool steal(int worker, int pieces, std::uint32_t job);
  void finish(int pieces, std::uint32_t job, int worker);
  void wait_for_job(std::uint32_t seen, int worker);
  [[nodiscard]] int late_worker(std::uint32_t job, int worker);
  void leave_shared_core(int worker);
  void wake_sleepers();
  [[nodiscard]] bool may_spin() const { return load_ == nullptr || !load_->crowded(); }

  const int size_;
  const bool halves_;  ///< workers take their shares in halves, not in one call
  std::shared_ptr<CoreLoad> load_;
  std::vector<std::thread> workers_;

  /// Who published a job, and from which core.
  struct Publisher {
    std::int16_t worker = 0, core = -1;
  };

  static constexpr std::size_t kInline = 32;
  /// Written by the caller before `number` moves; all in the line that workers wait for. Call and body are read by those who have
  /// taken tasks of the job: it lasts at least until these are done. A number without tasks ends a list.
  struct alignas(64) Job {
    std::atomic<Number> number{};
    Call call = nullptr;
    void* at = nullptr;       ///< the body: `body`, or the caller's
    std::uint32_t first = 0;  ///< number of the list's first job
    std::atomic<Publisher> publisher{};
    alignas(void*) std::byte body[kInline] = {};
  };
  static_assert(sizeof(Job) == 64 && std::atomic<Number>::is_always_lock_free);
  struct alignas(64) Share {
    std::atomic<Left> left{};
    std::atomic<int> core{-1};            ///< where the worker began its last job
    std::atomic<int> thread{0};           ///< the system's number of it; 0: the caller
    std::atomic<bool> runs{false};        ///< it may have tasks in hand
    std::atomic<std::uint32_t> asked{0};  ///< job in which somebody looked whether it has lost its core
  };
  static_assert(std::atomic<Left>::is_always_lock_free && std::atomic<Publisher>::is_always_lock_free);

  Job job_;
  alignas(64) List list_;
  std::thread::id caller_;                    ///< of the last list
  alignas(64) std::atomic<int> pending_{0};   ///< pieces of the job that are not done
  alignas(64) std::atomic<int> sleepers_{0};  ///< threads that sleep, or are about to, since the bell rang last
  std::atomic<std::uint32_t> bell_{0};        ///< what they sleep on: changes when they are woken
  std::atomic<bool> stop_{false};
  std::atomic<long> left_cores_{0}, brought_{0};
  std::atomic<int> contested_{0};  ///< jobs for which shares are still taken in halves, because a worker had lost its core
  std::unique_ptr<Share[]> shares_;
  bool counted_ = false;  ///< in load_
  unsigned generation_;   ///< fork_generation() when the workers were started
};

}  // namespace octavo::engine
