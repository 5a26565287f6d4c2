#include "base/first_run.h"

#include <atomic>

namespace octavo {
namespace {

std::array<std::atomic<std::int64_t>, kRunParts.size()>& spent() {
  static std::array<std::atomic<std::int64_t>, kRunParts.size()> nanoseconds{};
  return nanoseconds;
}

}  // namespace

std::array<double, kRunParts.size()> run_part_seconds() {
  std::array<double, kRunParts.size()> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(spent()[i].load(std::memory_order_relaxed)) * 1e-9;
  return out;
}

void add_time(RunPart part, std::chrono::nanoseconds took) {
  spent()[static_cast<std::size_t>(part)].fetch_add(took.count(), std::memory_order_relaxed);
}

}  // namespace octavo
