#include "support/run_plan.h"

#include <algorithm>
#include <cstring>

#include "region/host_kernel.h"

namespace octavo::testing {
namespace {

constexpr std::size_t kSlack = 128;

std::byte* aligned(std::vector<std::byte>& v) {
  const auto address = reinterpret_cast<std::uintptr_t>(v.data()) + kSlack / 2;
  return reinterpret_cast<std::byte*>((address + 63) / 64 * 64);
}

}  // namespace

PlanMemory::PlanMemory(const region::Plan& plan, std::uint8_t fill) {
  std::vector<std::byte> arena(static_cast<std::size_t>(plan.devices[region::kHost].arena_bytes) + 2 * kSlack, std::byte{fill});
  storage_.push_back(std::move(arena));
  std::byte* base = aligned(storage_[0]);
  for (const region::Buffer& b : plan.buffers) {
    if (b.kind == region::BufferKind::arena) {
      memory.base.push_back(base + b.arena_offset);
      continue;
    }
    storage_.emplace_back(static_cast<std::size_t>(b.bytes) + 2 * kSlack, std::byte{fill});
    std::byte* at = aligned(storage_.back());
    if (b.kind == region::BufferKind::constant && b.bytes > 0)
      std::memcpy(at, b.data.bytes().data(), static_cast<std::size_t>(b.bytes));
    memory.base.push_back(at);
  }
}

namespace {
Status run_image(const region::Plan& plan, const std::vector<const region::Provider*>& providers,
                 const std::vector<ir::Tensor>& inputs, std::int64_t image, bool tasks_backwards,
                 const std::function<void(std::size_t, const region::Memory&)>& after, PlanMemory& held,
                 std::vector<ir::Tensor>& outputs) {
  const auto part = [&](const region::Buffer& b) { return static_cast<std::size_t>(image * b.bytes); };
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const region::Buffer& b = plan.buffers[i];
    if (b.kind != region::BufferKind::input) continue;
    const ir::Tensor& t = inputs[static_cast<std::size_t>(b.binding)];
    std::memcpy(held.memory.base[i], t.bytes().data() + part(b), t.bytes().size() / static_cast<std::size_t>(plan.images));
  }
  for (std::size_t k = 0; k < plan.regions.size(); ++k) {
    const region::Region& r = plan.regions[k];
    std::vector<const std::byte*> packed;
    for (const region::BufferId id : r.packed) packed.push_back(held.memory.base[static_cast<std::size_t>(id)]);
    const auto by = std::find_if(providers.begin(), providers.end(), [&](const region::Provider* p) { return p->knows(r.tactic); });
    if (by == providers.end())
      return fail(ErrorKind::internal, "no provider knows tactic \"" + r.tactic.name() + "\" of region \"" + r.name + "\"");
    OCTAVO_TRY(const auto kernel, region::as_host_kernel((*by)->load(r, plan, {packed, {}, r.launch})));
    std::vector<std::byte> scratch(kernel->scratch_bytes() + 64);
    const auto address = (reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64;
    const region::Worker worker{0, 1, reinterpret_cast<std::byte*>(address)};
    const int tasks = kernel->tasks();
    if (tasks_backwards) {
      for (int t = tasks; t-- > 0;) kernel->run(held.memory, t, t + 1, worker);
    } else {
      kernel->run(held.memory, 0, tasks, worker);
    }
    if (after) after(k, held.memory);
  }
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const region::Buffer& b = plan.buffers[i];
    if (b.kind != region::BufferKind::output) continue;
    ir::Tensor& t = outputs[static_cast<std::size_t>(b.binding)];
    std::memcpy(t.mutable_bytes().data() + part(b), held.memory.base[i], t.bytes().size() / static_cast<std::size_t>(plan.images));
  }
  return {};
}

}  // namespace

Result<std::vector<ir::Tensor>> run_plan(const region::Plan& plan, const std::vector<const region::Provider*>& providers,
                                         const std::vector<ir::Tensor>& inputs, bool tasks_backwards,
                                         const std::function<void(std::size_t, const region::Memory&)>& after) {
  PlanMemory held(plan);
  std::vector<ir::Tensor> outputs;
  for (const region::Binding& b : plan.outputs) outputs.emplace_back(b.type);
  for (std::int64_t image = 0; image < plan.images; ++image)
    OCTAVO_CHECK(run_image(plan, providers, inputs, image, tasks_backwards, after, held, outputs));
  return outputs;
}

bool has_float_sum(const region::Plan& plan) {
  for (const region::Region& r : plan.regions) {
    for (const region::Stage& s : r.stages) {
      if (s.anchor.weights && !s.anchor.integer) return true;
    }
  }
  return false;
}

}  // namespace octavo::testing
