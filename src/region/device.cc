#include "region/device.h"

#include <algorithm>
#include <chrono>

namespace octavo::region {

Result<double> Executor::time(std::size_t first, std::size_t last, const Memory& memory, int runs) {
  using Clock = std::chrono::steady_clock;
  const int count = std::max(runs, 1);
  OCTAVO_CHECK(wait());
  const auto begin = Clock::now();
  for (int i = 0; i < count; ++i) OCTAVO_CHECK(start(first, last, memory, nullptr));
  OCTAVO_CHECK(wait());
  return std::chrono::duration<double>(Clock::now() - begin).count() / count;
}

}  // namespace octavo::region
