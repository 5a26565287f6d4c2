#include "region/lives.h"

#include "region/stage_graph.h"

namespace octavo::region {

std::vector<Life> lives_of(const Plan& plan) {
  std::vector<Life> lives(plan.buffers.size());
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const auto kept = kept_from_memory(plan.regions[i]);
    const auto touch = [&](const TensorRef& t) {
      if (kept.contains(t.buffer)) return;
      Life& life = lives[static_cast<std::size_t>(t.buffer)];
      if (life.first < 0) life.first = static_cast<int>(i);
      life.last = static_cast<int>(i);
    };
    if (plan.regions[i].count >= 0) {
      Life& life = lives[static_cast<std::size_t>(plan.regions[i].count)];
      if (life.first >= 0) life.last = static_cast<int>(i);
    }
    for (const Stage& stage : plan.regions[i].stages) {
      for (const TensorRef& t : stage.anchor.inputs) touch(t);
      for (const Operand& o : stage.operands) touch(o.ref);
      for (const TensorRef& t : stage.stores) touch(t);
    }
  }
  return lives;
}

}  // namespace octavo::region
