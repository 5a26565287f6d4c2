// Says on stderr what is going on, when it takes more than a few seconds.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "base/task.h"

namespace octavo::cli {

/// Steps are announced by step(). On a terminal: one line, shown once a second has passed, replaced by the next step, erased at the
/// end. Elsewhere: a line after 5 s, then after pauses that double up to a minute, so that a log of a long build shows that it
/// lives. With `verbose`: a line a step at once, with the time so far. Thread-safe.
class Progress {
 public:
  explicit Progress(bool verbose);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(std::string text);
  /// Passes the steps of long work on to step(), with `what` behind them, and never stops it. This object must outlive it.
  [[nodiscard]] TaskWatcher watcher(std::string what);

 private:
  void watch();
  [[nodiscard]] double seconds() const;

  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const bool verbose_, live_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  bool done_ = false, shown_ = false;
  std::thread watcher_;
};

}  // namespace octavo::cli
