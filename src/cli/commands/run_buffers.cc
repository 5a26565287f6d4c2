#include "cli/commands/run_buffers.h"

#include "api/check.h"

namespace octavo::cli {

RunBuffers::RunBuffers(const region::Plan& plan) : inputs(api::random_inputs(plan, 1)) {
  for (const ir::Tensor& t : inputs) in.push_back(t.bytes().data());
  for (const region::Binding& b : plan.outputs) outputs.emplace_back(b.type);
  for (ir::Tensor& t : outputs) out.push_back(t.mutable_bytes().data());
}

void RunBuffers::feed(std::vector<ir::Tensor> tensors) {
  inputs = std::move(tensors);
  in.clear();
  for (const ir::Tensor& t : inputs) in.push_back(t.bytes().data());
}

Result<DeviceBuffers> DeviceBuffers::create(const engine::Engine& engine, const RunBuffers& from) {
  DeviceBuffers b;
  if (engine.plan().devices.size() < 2) return b;
  constexpr region::DeviceId kDevice = 1;  // plans have one device beside the host
  const region::Device& device = engine.device(kDevice);
  const auto add = [&](std::span<const std::byte> bytes, std::vector<engine::Address>& list) -> Status {
    OCTAVO_TRY(auto memory, device.allocate(bytes.size()));
    OCTAVO_CHECK(device.write(memory->address(), bytes));
    list.push_back({memory->address(), kDevice});
    b.memory.push_back(std::move(memory));
    return {};
  };
  for (const ir::Tensor& t : from.inputs) OCTAVO_CHECK(add(t.bytes(), b.in));
  for (const ir::Tensor& t : from.outputs) OCTAVO_CHECK(add(t.bytes(), b.out));
  return b;
}

}  // namespace octavo::cli
