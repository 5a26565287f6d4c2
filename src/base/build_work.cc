#include "base/build_work.h"

#include <mutex>

namespace octavo {
namespace {

struct Sum {
  std::mutex mutex;
  BuildWork work;
};
Sum& sum() {
  static Sum one;
  return one;
}
thread_local BuildTimer* innermost = nullptr;

}  // namespace

BuildWork operator-(BuildWork a, const BuildWork& b) {
  a.timed -= b.timed, a.kernels -= b.kernels;
  a.read -= b.read, a.open -= b.open, a.prepare -= b.prepare, a.wait -= b.wait, a.time -= b.time;
  a.compile -= b.compile, a.compile_processor -= b.compile_processor;
  return a;
}

BuildWork build_work() {
  const std::lock_guard lock(sum().mutex);
  return sum().work;
}

void add_build_work(const BuildWork& more) {
  const std::lock_guard lock(sum().mutex);
  BuildWork& w = sum().work;
  w.timed += more.timed, w.kernels += more.kernels;
  w.read += more.read, w.open += more.open, w.prepare += more.prepare, w.wait += more.wait, w.time += more.time;
  w.compile += more.compile, w.compile_processor += more.compile_processor;
}

BuildTimer::BuildTimer(double BuildWork::*part) : part_(part), outer_(innermost), begin_(Clock::now()) {
  if (outer_ != nullptr) outer_->stop(begin_);
  innermost = this;
}

BuildTimer::~BuildTimer() {
  const Clock::time_point now = Clock::now();
  stop(now);
  innermost = outer_;
  if (outer_ != nullptr) outer_->begin_ = now;
}

void BuildTimer::stop(Clock::time_point now) const {
  BuildWork more;
  more.*part_ = std::chrono::duration<double>(now - begin_).count();
  add_build_work(more);
}

}  // namespace octavo
