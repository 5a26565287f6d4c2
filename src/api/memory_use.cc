#include "api/memory_use.h"

#include <algorithm>
#include <set>
#include <utility>

namespace octavo::api {

MemoryUse memory_of(const engine::Engines& engines, int threads) {
  MemoryUse use;
  std::set<std::pair<const std::byte*, std::size_t>> constants;  // engines for other shapes share them
  for (const auto& e : engines) {
    const region::Plan& plan = e->plan();
    for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
      if (plan.buffers[i].kind != region::BufferKind::constant) continue;
      const auto bytes = e->constant(static_cast<region::BufferId>(i));
      if (constants.emplace(bytes.data(), bytes.size()).second) use.constants += bytes.size();
    }
    const std::int64_t lanes = plan.images > 1 ? std::min<std::int64_t>(threads, plan.images) : 1;
    const std::size_t arena = engine::round_up(static_cast<std::size_t>(plan.devices[region::kHost].arena_bytes));
    use.working = std::max<std::uint64_t>(use.working, static_cast<std::uint64_t>(lanes) * arena);
  }
  use.working_most = use.working;
  return use;
}

}  // namespace octavo::api
