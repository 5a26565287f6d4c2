#include "engine/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <xmmintrin.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/float_environment.h"
#include "support/wait_until.h"

namespace octavo::engine {
namespace {

using testing::wait_until;

std::unique_ptr<ThreadPool> pool_of(int threads, std::shared_ptr<CoreLoad> load = nullptr) {
  auto pool = ThreadPool::create(threads, std::move(load));
  EXPECT_TRUE(pool) << (pool ? "" : pool.error().message);
  return std::move(*pool);
}

TEST(ThreadPool, CoversEveryTaskOnceForEverySize) {
  for (const int threads : {1, 2, 3, 5}) {
    const auto pool = pool_of(threads);
    EXPECT_EQ(pool->size(), threads);
    for (const int tasks : {0, 1, 2, 3, 4, 5, 7, 64, 1001, 65535, 65536, 200001}) {
      std::vector<int> hits(static_cast<std::size_t>(tasks), 0);  // not atomic: ranges must not overlap (TSan checks)
      std::vector<int> calls(static_cast<std::size_t>(threads), 0);
      pool->run(tasks, [&](int begin, int end, int worker) {
        ++calls[static_cast<std::size_t>(worker)];
        for (int i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
      });
      for (int i = 0; i < tasks; ++i)
        EXPECT_EQ(hits[static_cast<std::size_t>(i)], 1) << "task " << i << " of " << tasks << ", threads " << threads;
      for (int w = 0; w < threads; ++w) {
        const int count = calls[static_cast<std::size_t>(w)];
        if (w >= std::min(tasks, threads)) EXPECT_EQ(count, 0);
        if (threads == 1 && tasks > 0) EXPECT_EQ(count, 1);
      }
    }
  }
}

TEST(ThreadPool, ListsRunInOrderWithEveryTaskOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    const auto pool = pool_of(threads);
    constexpr int kJobs = 40;
    const auto tasks = [](int job) { return job % 7 == 3 ? 0 : job % 3 == 0 ? 1 : 1 + job * 5 % 23; };
    for (int round = 0; round < 50; ++round) {
      // Each job reads what the one before wrote, on whatever thread: not atomic, so that TSan sees what is not ordered.
      std::vector<std::vector<int>> made(kJobs + 1, std::vector<int>(24, 0));
      made[0].assign(24, 1);
      pool->run_all(kJobs, tasks, [&](int job, int begin, int end, int) {
        const auto j = static_cast<std::size_t>(job);
        for (int t = begin; t < end; ++t)
          made[j + 1][static_cast<std::size_t>(t)] += made[j][static_cast<std::size_t>(23 - t)] == 1 ? 1 : 2;
      });
      for (int job = 0; job < kJobs; ++job) {
        for (int t = 0; t < 24; ++t) {
          const int value = made[static_cast<std::size_t>(job) + 1][static_cast<std::size_t>(t)];
          const int before = made[static_cast<std::size_t>(job)][static_cast<std::size_t>(23 - t)];
          EXPECT_EQ(value, t >= tasks(job) ? 0 : before == 1 ? 1 : 2) << "job " << job << ", task " << t << ", threads " << threads;
        }
      }
    }
    pool->run_all(0, tasks, [](int, int, int, int) { ADD_FAILURE() << "there are no jobs"; });
  }
}

// Pools that may not spin sleep and wake at every job: nobody may sleep through the end of a list.
TEST(ThreadPool, NobodySleepsThroughAJob) {
  const auto load = std::make_shared<CoreLoad>(1);
  for (const int threads : {2, 3, 5}) {
    const auto pool = pool_of(threads, load);
    ASSERT_TRUE(load->crowded());
    std::atomic<int> done{0};
    int all = 0;
    for (int round = 0; round < 3000; ++round) {
      const auto tasks = [&](int job) { return 1 + (job + round) % 4; };
      for (int job = 0; job < 6; ++job) all += tasks(job);
      pool->run_all(6, tasks, [&](int, int begin, int end, int) { done += end - begin; });
    }
    EXPECT_EQ(done, all);
  }
}

TEST(ThreadPool, BodiesOfAllSizes) {
  const auto pool = pool_of(3);
  std::vector<int> hits(100, 0);
  int* const at = hits.data();
  const auto by_value = [at](int begin, int end, int) {  // copied
    for (int i = begin; i < end; ++i) ++at[i];
  };
  struct {
    int* at;
    long weights[8];
  } const large{at, {1, 2, 3, 4, 5, 6, 7, 8}};
  for (int round = 0; round < 100; ++round) {
    pool->run(100, by_value);
    pool->run(100, [large](int begin, int end, int) {  // stays where it is
      for (int i = begin; i < end; ++i) large.at[i] += static_cast<int>(large.weights[i % 8]);
    });
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(hits[static_cast<std::size_t>(i)], 100 * (2 + i % 8));
}

/// Seconds of one of `runs` calls of `run`, the least of many rounds: other processes have the cores at times, and only add.
template <class Run>
double least_seconds(int runs, const Run& run) {
  using Clock = std::chrono::steady_clock;
  double best = 1;
  for (int round = 0; round < 200; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < runs; ++i) run();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count() / runs);
  }
  return best;
}

/// The same of two threads that wait for each other's number without anything else.
double least_handshake(int runs) {
  std::atomic<int> asked{0}, answered{0};
  std::thread other([&] {
    for (int seen = 0; seen >= 0;) {
      const int now = asked.load(std::memory_order_acquire);
      if (now == seen) continue;
      seen = now;
      answered.store(now, std::memory_order_release);
    }
  });
  int n = 0;
  const double seconds = least_seconds(runs, [&] {
    asked.store(++n, std::memory_order_release);
    while (answered.load(std::memory_order_acquire) != n) {
    }
  });
  asked.store(-1, std::memory_order_release);
  other.join();
  return seconds;
}

TEST(ThreadPool, StartsAndJoinsWithinTwoMicroseconds) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "needs two cores";
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "every access costs here";
#endif
  const auto pool = pool_of(2);
  int done[2][16] = {};
  const double best = least_seconds(100, [&] { pool->run(2, [&](int, int, int worker) { ++done[worker][0]; }); });
  EXPECT_EQ(done[0][0] + done[1][0], 2 * 200 * 100);  // a worker that is late finds its task taken
  // Where other processes never leave two cores to this one, two threads that do nothing else take as long.
  const double bare = best < 2e-6 ? 0 : least_handshake(100);
  EXPECT_LT(best, std::max(2e-6, 8 * bare)) << "a bare handshake takes " << bare;
  RecordProperty("nanoseconds", std::to_string(best * 1e9));
}

TEST(ThreadPool, TwoWorkersShareEvenly) {
  const auto pool = pool_of(2);
  std::vector<std::pair<int, int>> ranges(2);
  std::array<std::atomic<bool>, 2> begun{};
  pool->run(11, [&](int begin, int end, int worker) {
    const auto w = static_cast<std::size_t>(worker);
    ranges[w] = {begin, end};
    begun[w] = true;
    EXPECT_TRUE(wait_until([&] { return begun[1 - w].load(); }));  // or it would take what the other has not begun
  });
  EXPECT_EQ(ranges, (std::vector<std::pair<int, int>>{{0, 5}, {5, 11}}));
}

/// Makes the calling thread and all others of this process share one core, until the end of the scope.
class OnOneCore {
 public:
  OnOneCore() {
    CPU_ZERO(&before_);
    worked_ = sched_getaffinity(0, sizeof before_, &before_) == 0;
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &before_)) CPU_SET(cpu, &one);
    }
    worked_ = worked_ && apply(one);
  }
  ~OnOneCore() { apply(before_); }
  OnOneCore(const OnOneCore&) = delete;
  OnOneCore& operator=(const OnOneCore&) = delete;
  [[nodiscard]] bool worked() const { return worked_; }

 private:
  static bool apply(const cpu_set_t& set) {
    bool all = true;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task"))
      all = sched_setaffinity(std::stoi(thread.path().filename()), sizeof set, &set) == 0 && all;
    return all;
  }
  cpu_set_t before_;
  bool worked_ = false;
};

// A worker without a core, here because the caller has the only one, is not waited for: the caller does its work too.
TEST(ThreadPool, TheCallerDoesTheWorkOfAWorkerWithoutACore) {
  for (const int threads : {2, 4}) {
    const auto pool = pool_of(threads);
    const OnOneCore here;
    if (!here.worked()) GTEST_SKIP() << "the system does not let threads be moved";
    int by_caller = 0;
    std::atomic<int> all{0};
    constexpr int kRuns = 2000, kTasks = 8;
    for (int i = 0; i < kRuns; ++i) {
      pool->run(kTasks, [&](int begin, int end, int worker) {
        if (worker == 0) by_caller += end - begin;
        all += end - begin;
      });
    }
    EXPECT_EQ(all, kRuns * kTasks);
    EXPECT_GT(by_caller, kRuns * kTasks * 3 / 4) << threads << " threads: each run waited for the others' turn on the core";
  }
}

// Worker 0 takes half of its 16 tasks and returns from them when all others are done: by the others, its own other half too.
TEST(ThreadPool, OthersTakeWhatASlowWorkerHasNotBegun) {
  const auto pool = pool_of(4);
  std::vector<int> by(64, -1);
  std::atomic<bool> begun{false};
  std::atomic<int> others{0};
  bool in_time = true;  // of worker 0
  pool->run(64, [&](int begin, int end, int worker) {
    for (int i = begin; i < end; ++i) by[static_cast<std::size_t>(i)] = worker;
    if (worker == 0) {
      begun = true;
      in_time = wait_until([&] { return others == 56; });
    } else {
      (void)wait_until([&] { return begun.load(); });
      others += end - begin;
    }
  });
  EXPECT_TRUE(in_time) << others << " of 56 tasks were taken by others";
  EXPECT_EQ(by[0], 0);
  EXPECT_EQ(std::count(by.begin(), by.end(), -1), 0);
  EXPECT_EQ(std::count(by.begin(), by.end(), 0), 8);
}

TEST(ThreadPool, DoesNotWaitForWorkersThatFindNothingLeft) {
  const auto pool = pool_of(8);  // more than there are cores: some come late to every job, or to none
  for (int round = 0; round < 20000; ++round) {
    const int tasks = 1 + round * 7 % 40;
    int hits[40] = {};
    pool->run(tasks, [&](int begin, int end, int) {
      for (int i = begin; i < end; ++i) ++hits[i];
    });
    for (int i = 0; i < 40; ++i) ASSERT_EQ(hits[i], i < tasks ? 1 : 0) << "job " << round << " of " << tasks << ", task " << i;
  }
}

TEST(ThreadPool, CallerIsWorkerZero) {
  const auto pool = pool_of(2);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> by_caller{0}, wrong{0};
  for (int run = 0; run < 1000 && (run < 10 || by_caller == 0); ++run) {  // of one run the other thread may take all
    pool->run(2, [&](int, int, int worker) {
      wrong += (worker == 0) != (std::this_thread::get_id() == caller) ? 1 : 0;
      by_caller += worker == 0 ? 1 : 0;
    });
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(by_caller, 0);
}

TEST(ThreadPool, ResultsOfOneJobAreSeenByTheNext) {
  const auto pool = pool_of(4);
  std::vector<int> a(4096, 0), b(4096, 0);
  for (int round = 0; round < 500; ++round) {
    pool->run(4096, [&](int begin, int end, int) {
      for (int i = begin; i < end; ++i) a[static_cast<std::size_t>(i)] = b[static_cast<std::size_t>(4095 - i)] + 1;
    });
    std::swap(a, b);
  }
  for (const int v : b) ASSERT_EQ(v, 500);
}

// Sleeping workers, sleeping callers and pools torn down at every stage.
TEST(ThreadPool, WakesAfterSleepAndStops) {
  for (int pause_us : {0, 20, 200, 2000}) {
    const auto pool = pool_of(3);
    for (int round = 0; round < 10; ++round) {
      int sum[3] = {};
      pool->run(3, [&](int begin, int, int) {
        if (begin == 2) std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
        sum[begin] = begin + 1;
      });
      EXPECT_EQ(sum[0] + sum[1] + sum[2], 6);
      std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    }
  }
  for (int i = 0; i < 50; ++i) pool_of(3);  // created and destroyed at once
}

TEST(ThreadPool, CrowdedPoolsDoNotSpinAndStillWork) {
  const auto load = std::make_shared<CoreLoad>(1);
  {
    const auto a = pool_of(2, load), b = pool_of(3, load);
    EXPECT_EQ(load->threads.load(), 5);
    EXPECT_TRUE(load->crowded());
    for (int round = 0; round < 100; ++round) {
      std::vector<int> hits(6, 0);
      a->run(6, [&](int begin, int end, int) {
        for (int i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
      });
      b->run(6, [&](int begin, int end, int) {
        for (int i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
      });
      EXPECT_EQ(hits, std::vector<int>(6, 2));
    }
  }
  EXPECT_EQ(load->threads.load(), 0);
}

TEST(ThreadPool, RefusesNoThreads) {
  const auto pool = ThreadPool::create(0);
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().kind, ErrorKind::usage);
  EXPECT_EQ(pool.error().message, "thread pool: 0 threads asked for, needs at least 1");
}

TEST(DefaultFloatEnvironment, SetsAndRestoresFlushToZero) {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040U);  // flush to zero, denormals are zero
  volatile float tiny = 1e-40F;
  {
    const DefaultFloatEnvironment floats;
    EXPECT_NE(tiny * 1.0F, 0.0F);
    // Workers of a pool created under such a setting inherit it, and must not keep it.
    const unsigned inside = _mm_getcsr();
    EXPECT_EQ(inside & 0x8040U, 0U);
  }
  EXPECT_EQ(_mm_getcsr() & 0x8040U, 0x8040U);
  const auto pool = pool_of(2);
  float product = 0;
  std::atomic<bool> done{false};
  pool->run(2, [&](int, int, int worker) {
    if (worker == 1) product = tiny * 1.0F, done = true;
    if (worker == 0) EXPECT_TRUE(wait_until([&] { return done.load(); }));
  });
  _mm_setcsr(saved);
  EXPECT_NE(product, 0.0F);
}

}  // namespace
}  // namespace octavo::engine
