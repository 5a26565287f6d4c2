#include "quantize/data/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/task.h"

namespace octavo::quantize {

Status together(int threads, const std::function<void()>& work) {
  constexpr auto kPause = std::chrono::milliseconds(20);
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable ended;
  int left = std::max(threads - 1, 0);
  std::vector<std::thread> workers;
  for (int t = 0; t < threads - 1; ++t) {
    workers.emplace_back([&] {
      {
        const TaskScope of_caller([&](std::string_view) { return !stop.load(std::memory_order_relaxed); });
        work();
      }
      const std::lock_guard lock(mutex);
      --left;
      ended.notify_all();
    });
  }
  work();
  for (std::unique_lock lock(mutex); left > 0;) {  // the watcher is asked while others go on
    lock.unlock();
    if (!check_cancelled()) stop = true;
    lock.lock();
    ended.wait_for(lock, kPause, [&] { return left == 0; });
  }
  for (std::thread& t : workers) t.join();
  return check_cancelled();
}

Status parallel(std::size_t count, int threads, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next{0};
  return together(static_cast<int>(std::min(static_cast<std::size_t>(std::max(threads, 1)), std::max<std::size_t>(count, 1))), [&] {
    for (std::size_t i = next.fetch_add(1); i < count && check_cancelled(); i = next.fetch_add(1)) body(i);
  });
}

}  // namespace octavo::quantize
