#include "region/forwarded.h"

namespace octavo::region {

std::set<BufferId> kept_from_memory(const Region& r) {
  std::set<BufferId> kept;
  if (r.independent || !r.tactic.forwards_stages) return kept;
  const auto named = [&](BufferId id) {
    int n = 0;
    for (const Stage& s : r.stages) {
      for (const TensorRef& t : s.anchor.inputs) n += t.buffer == id ? 1 : 0;
      if (s.anchor.weights) n += s.anchor.weights->buffer == id ? 1 : 0;
      for (const Operand& o : s.operands) n += o.ref.buffer == id ? 1 : 0;
      for (const TensorRef& t : s.stores) n += t.buffer == id ? 1 : 0;
    }
    return n;
  };
  for (std::size_t k = 1; k < r.stages.size(); ++k) {
    const auto& anchor = r.stages[k].anchor.inputs;
    const bool read = read_by_epilogue(r, k) || (!anchor.empty() && forwarded(r, k, anchor[0]));
    const auto& stores = r.stages[k - 1].stores;
    if (read && stores.size() == 1 && named(stores[0].buffer) == 2) kept.insert(stores[0].buffer);
  }
  return kept;
}

}  // namespace octavo::region
