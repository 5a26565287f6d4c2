#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>

#include "cli/print.h"

namespace octavo::cli {

Progress::Progress(bool verbose) : verbose_(verbose), live_(!verbose && isatty(STDERR_FILENO) == 1) {
  if (!verbose_) watcher_ = std::thread([this] { watch(); });
}

Progress::~Progress() {
  if (!watcher_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  watcher_.join();
  if (live_ && shown_) say("\r\x1b[K");
}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Progress::step(std::string text) {
  const std::lock_guard lock(mutex_);
  if (text == text_) return;
  if (verbose_) say("[{:7.3f} s] {}\n", seconds(), text);
  text_ = std::move(text);
  if (live_ && shown_) changed_.notify_all();
}

TaskWatcher Progress::watcher(std::string what) {
  return [this, what = std::move(what)](std::string_view now) {
    step(what.empty() ? std::string(now) : fmt::format("{} {}", now, what));
    return true;
  };
}

void Progress::watch() {
  using std::chrono::seconds, std::chrono::milliseconds;
  std::unique_lock lock(mutex_);
  std::chrono::steady_clock::duration pause = live_ ? seconds(1) : seconds(5);
  auto next = start_ + pause;
  while (!done_) {
    changed_.wait_until(lock, next);
    const bool due = std::chrono::steady_clock::now() >= next;
    if (done_ || text_.empty() || (!due && !shown_)) {
      if (due) next += pause;
      continue;
    }
    if (live_) {
      say("\r\x1b[K{} ({:.0f} s so far)", text_, this->seconds());
      (void)std::fflush(stderr);
      pause = milliseconds(200);  // often enough for the seconds to move
      next = std::chrono::steady_clock::now() + pause;
    } else if (due) {
      say("octavo: {} ({:.0f} s so far)\n", text_, this->seconds());
      next += pause;
      pause = std::min<std::chrono::steady_clock::duration>(2 * pause, seconds(60));
    }
    shown_ = true;
  }
}

}  // namespace octavo::cli
