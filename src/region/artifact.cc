#include "region/artifact.h"

#include <cstring>
#include <set>

namespace octavo::region {
namespace {

BufferId add_constant(ir::Tensor data, DeviceId space, std::string name, Plan& plan) {
  Buffer b;
  b.kind = BufferKind::constant;
  b.space = space;
  b.bytes = static_cast<std::int64_t>(data.bytes().size());
  b.data = std::move(data);
  b.name = std::move(name);
  plan.buffers.push_back(std::move(b));
  return static_cast<BufferId>(plan.buffers.size() - 1);
}

}  // namespace

void keep_artifact(Artifact made, Region& r, Plan& plan) {
  r.packed.clear();
  for (ir::Tensor& t : made.constants) r.packed.push_back(add_constant(std::move(t), r.device, r.name + " (packed)", plan));
  r.code = -1;
  if (!made.code.empty()) {
    ir::Tensor code(ir::DType::u8, {static_cast<std::int64_t>(made.code.size())});
    std::memcpy(code.mutable_bytes().data(), made.code.data(), made.code.size());
    r.code = add_constant(std::move(code), kHost, r.name + " (code)", plan);
  }
  r.launch = std::move(made.launch);
  std::set<std::string> required(r.tactic.required.begin(), r.tactic.required.end());
  required.insert(made.required.begin(), made.required.end());
  r.required.assign(required.begin(), required.end());
}

void drop_packed_weights(Plan& plan) {
  std::vector<char> read(plan.buffers.size(), 0), packed(plan.buffers.size(), 0);
  const auto reads = [&](const TensorRef& t) { read[static_cast<std::size_t>(t.buffer)] = 1; };
  for (const Region& r : plan.regions) {
    for (const BufferId id : r.packed) packed[static_cast<std::size_t>(id)] = 1;
    if (r.code >= 0) packed[static_cast<std::size_t>(r.code)] = 1;
    for (const Stage& s : r.stages) {
      for (const TensorRef& t : s.anchor.inputs) reads(t);
      for (const Operand& o : s.operands) reads(o.ref);
      for (const TensorRef& t : s.stores) reads(t);
      if (s.anchor.weights && r.packed.empty()) reads(*s.anchor.weights);
    }
  }
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    Buffer& b = plan.buffers[i];
    if (b.kind != BufferKind::constant || read[i] != 0 || packed[i] != 0) continue;
    b.bytes = 0;
    b.data = ir::Tensor(ir::DType::u8, {0});
  }
}

}  // namespace octavo::region
