#include "base/first_run.h"

#include <atomic>

namespace octavo {
namespace {

using Clock = std::chrono::steady_clock;

std::array<std::atomic<std::int64_t>, kRunParts.size()>& spent() {
  static std::array<std::atomic<std::int64_t>, kRunParts.size()> nanoseconds{};
  return nanoseconds;
}
thread_local RunPartTimer* innermost = nullptr;

}  // namespace

std::array<double, kRunParts.size()> run_part_seconds() {
  std::array<double, kRunParts.size()> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(spent()[i].load(std::memory_order_relaxed)) * 1e-9;
  return out;
}

RunPartTimer::RunPartTimer(RunPart part) : part_(part), outer_(innermost), begin_(Clock::now()) {
  if (outer_ != nullptr) outer_->stop(begin_);
  innermost = this;
}

RunPartTimer::~RunPartTimer() {
  const Clock::time_point now = Clock::now();
  stop(now);
  innermost = outer_;
  if (outer_ != nullptr) outer_->begin_ = now;
}

void RunPartTimer::stop(Clock::time_point now) {
  const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(now - begin_).count();
  spent()[static_cast<std::size_t>(part_)].fetch_add(took, std::memory_order_relaxed);
}

}  // namespace octavo
