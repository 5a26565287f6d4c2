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

}  // namespace

BuildWork operator-(BuildWork a, const BuildWork& b) {
  a.timed -= b.timed, a.kernels -= b.kernels, a.processes -= b.processes;
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
  w.timed += more.timed, w.kernels += more.kernels, w.processes += more.processes;
  w.read += more.read, w.open += more.open, w.prepare += more.prepare, w.wait += more.wait, w.time += more.time;
  w.compile += more.compile, w.compile_processor += more.compile_processor;
}

void add_time(double BuildWork::*part, std::chrono::nanoseconds took) {
  BuildWork more;
  more.*part = std::chrono::duration<double>(took).count();
  add_build_work(more);
}

}  // namespace octavo
