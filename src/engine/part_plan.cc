#include "engine/part_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/limits.h"

namespace octavo::engine {

using region::BufferKind;

Status fits_memory(const region::Plan& plan, std::string_view name) {
  double needed = static_cast<double>(plan.devices[region::kHost].arena_bytes) * plan.lanes;
  for (const region::Buffer& b : plan.buffers) {
    if (b.kind == BufferKind::input || b.kind == BufferKind::output)
      needed += static_cast<double>(b.bytes) * static_cast<double>(plan.images);
  }
  const auto most = static_cast<double>(memory_bytes());
  if (needed <= most) return {};
  return fail(ErrorKind::bad_engine,
              fmt::format("engine \"{}\": it needs {:.0f} MiB (arena {} bytes, the rest inputs and outputs), this process may use "
                          "{:.0f} MiB",
                          name, needed / (1 << 20), plan.devices[region::kHost].arena_bytes, most / (1 << 20)));
}

Result<region::Plan> plan_of(const Part& part, std::string_view name) {
  const auto bad = [&](const std::string& fact) {
    return fail(ErrorKind::bad_engine, fmt::format("engine \"{}\": {}", name, fact));
  };
  auto plan = region::from_json({reinterpret_cast<const char*>(part.plan.data()), part.plan.size()});
  if (!plan) return bad("the plan section is not a valid plan: " + plan.error().message);
  if (const Status sound = region::verify(*plan); !sound) return bad("the plan is not sound: " + sound.error().message);
  return std::move(*plan);
}

Result<region::Plan> plan_with_constants(const Part& part, std::string_view name) {
  const auto bad = [&](const std::string& fact) {
    return fail(ErrorKind::bad_engine, fmt::format("engine \"{}\": {}", name, fact));
  };
  auto plan = region::from_json({reinterpret_cast<const char*>(part.plan.data()), part.plan.size()});
  if (!plan) return bad("the plan section is not a valid plan: " + plan.error().message);
  std::size_t found = 0;
  for (const auto& [id, bytes] : part.constants) {
    if (id >= plan->buffers.size() || plan->buffers[id].kind != BufferKind::constant || !plan->buffers[id].data.empty())
      return bad(fmt::format("constant section {}: the plan has no such constant buffer, or has it already", id));
    region::Buffer& b = plan->buffers[id];
    if (static_cast<std::uint64_t>(b.bytes) != bytes.size())
      return bad(fmt::format("constant {} has {} bytes, the plan says {}", id, bytes.size(), b.bytes));
    b.data = ir::Tensor(ir::DType::u8, {b.bytes});
    if (!bytes.empty()) std::memcpy(b.data.mutable_bytes().data(), bytes.data(), bytes.size());
    ++found;
  }
  const auto wanted = static_cast<std::size_t>(std::count_if(
      plan->buffers.begin(), plan->buffers.end(), [](const region::Buffer& b) { return b.kind == BufferKind::constant; }));
  if (found != wanted) return bad(fmt::format("{} constant sections, the plan has {} constants", found, wanted));
  OCTAVO_CHECK(fits_memory(*plan, name));
  if (const Status sound = region::verify(*plan); !sound) return bad("the plan is not sound: " + sound.error().message);
  return std::move(*plan);
}

}  // namespace octavo::engine
