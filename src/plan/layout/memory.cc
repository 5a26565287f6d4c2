#include "plan/layout/memory.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "region/in_place.h"
#include "region/lives.h"

namespace octavo::plan {

void plan_memory(region::Plan& plan) {
  constexpr std::int64_t kSlack = 64;
  // Large buffers begin at the same offset in a page. A kernel reads a residual a few pixels ahead of its stores. If the two addresses
  // are a few lines apart modulo 4096, processors assume that the loads need the stored bytes, and wait (docs/lab/kernels.md).
  constexpr std::int64_t kPage = 4096, kLarge = 64 << 10;
  std::vector<region::Life> lives = region::lives_of(plan);
  // A result that takes the memory of an operand whose last use this is: one place for both, while either is in use.
  std::vector<std::size_t> place_of(plan.buffers.size());
  std::iota(place_of.begin(), place_of.end(), std::size_t{0});
  const auto is_arena = [&](region::BufferId b) {
    return plan.buffers[static_cast<std::size_t>(b)].kind == region::BufferKind::arena;
  };
  std::vector<region::Life> own = lives;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const region::Region& r = plan.regions[i];
    for (const region::Stage& s : r.stages) {
      for (const region::TensorRef& store : s.stores) {
        const auto to = static_cast<std::size_t>(store.buffer);
        const auto ends_here = [&](const region::Operand& o) {
          const auto from = static_cast<std::size_t>(o.ref.buffer);
          return is_arena(o.ref.buffer) && o.ref.buffer != r.count && own[from].last == static_cast<int>(i) &&
                 own[from].first < own[to].first && plan.buffers[from].bytes == plan.buffers[to].bytes &&
                 plan.buffers[from].space == plan.buffers[to].space && plan.buffers[from].alignment == plan.buffers[to].alignment &&
                 region::in_place(r, o.ref.buffer, store.buffer);
        };
        if (!is_arena(store.buffer) || own[to].first != static_cast<int>(i)) continue;
        const auto o = std::find_if(s.operands.begin(), s.operands.end(), ends_here);
        if (o == s.operands.end()) continue;
        place_of[to] = place_of[static_cast<std::size_t>(o->ref.buffer)];
        lives[place_of[to]].last = own[to].last;
        own[static_cast<std::size_t>(o->ref.buffer)].last = -1;  // taken
      }
    }
  }
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    if (is_arena(static_cast<region::BufferId>(i)) && lives[i].last >= 0 && place_of[i] == i) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return plan.buffers[a].bytes > plan.buffers[b].bytes; });
  struct Placed {
    std::int64_t begin, end;
    region::Life life;
  };
  std::vector<std::vector<Placed>> placed(plan.devices.size());  // by memory space
  for (region::DeviceUse& d : plan.devices) d.arena_bytes = 0;
  for (const std::size_t i : order) {
    const region::Buffer& b = plan.buffers[i];
    const auto space = static_cast<std::size_t>(b.space);
    const std::int64_t unit = std::max(b.alignment, b.bytes >= kLarge ? kPage : 64);
    const std::int64_t before = std::max(kSlack, b.alignment);  // so that the buffer behind it is aligned
    const auto up = [&](std::int64_t bytes) { return (bytes + unit - 1) / unit * unit; };
    const std::int64_t size = before + (b.bytes + kSlack + 63) / 64 * 64;
    std::vector<Placed> conflicts;
    for (const Placed& p : placed[space]) {
      if (p.life.first <= lives[i].last && lives[i].first <= p.life.last) conflicts.push_back(p);
    }
    std::sort(conflicts.begin(), conflicts.end(), [](const Placed& x, const Placed& y) { return x.begin < y.begin; });
    std::int64_t at = 0;
    for (const Placed& p : conflicts) {
      if (at + size <= p.begin) break;
      at = std::max(at, up(p.end));
    }
    plan.buffers[i].arena_offset = at + before;
    placed[space].push_back({at, at + size, lives[i]});
    plan.devices[space].arena_bytes = std::max(plan.devices[space].arena_bytes, at + size);
  }
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    if (place_of[i] != i) plan.buffers[i].arena_offset = plan.buffers[place_of[i]].arena_offset;
  }
}

}  // namespace octavo::plan
