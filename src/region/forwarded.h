// What the stages of a chain forward: the result of one stage, which the next alone reads, by its anchor or in its epilogue.
#pragma once

#include <algorithm>

#include "region/region.h"

namespace octavo::region {

/// Is this what stage `s` of a chain reads of the stage before it? Everything else that a stage reads comes from outside the
/// region.
[[nodiscard]] inline bool forwarded(const Region& r, std::size_t s, const TensorRef& t) {
  return s > 0 && !r.independent && !r.stages[s - 1].stores.empty() && r.stages[s - 1].stores[0].buffer == t.buffer;
}

/// Does stage `s` of a chain read the one before it in its epilogue, and not by its anchor?
[[nodiscard]] inline bool read_by_epilogue(const Region& r, std::size_t s) {
  const auto& all = r.stages[s].operands;
  return std::any_of(all.begin(), all.end(), [&](const Operand& o) { return forwarded(r, s, o.ref); });
}

/// The buffers that no kernel of the region reads or writes, because its tactic keeps what stages forward in a worker's scratch:
/// they need no place in the arena. Those that anything else in the region names are not among them.
[[nodiscard]] std::set<BufferId> kept_from_memory(const Region& r);

}  // namespace octavo::region
