#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace octavo::cli {

Progress::Progress(bool verbose) : verbose_(verbose), live_(!verbose && isatty(STDERR_FILENO) == 1) {
  if (live_) watcher_ = std::thread([this] { watch(); });
}

Progress::~Progress() {
  if (!live_) return;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  watcher_.join();
  if (shown_) fmt::print(stderr, "\r\x1b[K");
}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Progress::step(std::string text) {
  if (verbose_) fmt::print(stderr, "[{:7.3f} s] {}\n", seconds(), text);
  const std::lock_guard lock(mutex_);
  text_ = std::move(text);
  if (live_ && shown_) changed_.notify_all();
}

void Progress::watch() {
  std::unique_lock lock(mutex_);
  auto pause = std::chrono::milliseconds(1000);  // then often enough for the seconds to move
  while (!done_) {
    changed_.wait_for(lock, pause);
    if (done_ || text_.empty() || (seconds() < 1 && !shown_)) continue;
    fmt::print(stderr, "\r\x1b[K{} ... {:.0f} s", text_, seconds());
    std::fflush(stderr);
    shown_ = true;
    pause = std::chrono::milliseconds(200);
  }
}

}  // namespace octavo::cli
