#include "region/artifact.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace octavo::region {
namespace {

ir::Tensor tensor_of(std::string_view bytes) {
  ir::Tensor out(ir::DType::u8, {static_cast<std::int64_t>(bytes.size())});
  if (!bytes.empty()) std::memcpy(out.mutable_bytes().data(), bytes.data(), bytes.size());
  return out;
}

BufferId add(BufferKind kind, ir::Tensor data, DeviceId space, std::string name, Plan& plan) {
  Buffer b;
  b.kind = kind;
  b.space = space;
  b.bytes = static_cast<std::int64_t>(data.bytes().size());
  b.data = std::move(data);
  b.name = std::move(name);
  plan.buffers.push_back(std::move(b));
  return static_cast<BufferId>(plan.buffers.size() - 1);
}

/// A constant with these bytes in this memory. Regions that read the same weights pack them alike, as the steps of an unrolled cell do:
/// one copy stays in cache, and in the file.
BufferId find_equal(const ir::Tensor& data, DeviceId space, const Plan& plan) {
  const auto bytes = data.bytes();
  const auto found = std::find_if(plan.buffers.begin(), plan.buffers.end(), [&](const Buffer& b) {
    return b.kind == BufferKind::constant && b.space == space && b.data.dtype() == data.dtype() &&
           b.data.bytes().size() == bytes.size() && !bytes.empty() &&
           std::memcmp(b.data.bytes().data(), bytes.data(), bytes.size()) == 0;
  });
  return found == plan.buffers.end() ? -1 : static_cast<BufferId>(found - plan.buffers.begin());
}

}  // namespace

void keep_artifact(Artifact made, Region& r, Plan& plan, Equals equals) {
  r.packed.clear();
  for (ir::Tensor& t : made.constants) {
    const BufferId equal = equals == Equals::once ? find_equal(t, r.device, plan) : -1;
    r.packed.push_back(equal >= 0 ? equal : add(BufferKind::constant, std::move(t), r.device, r.name + " (packed)", plan));
  }
  r.code = keep_source(made.source, r, plan);
  if (!made.code.empty()) r.code = add(BufferKind::constant, tensor_of(made.code), kHost, r.name + " (code)", plan);
  r.launch = std::move(made.launch);
  std::set<std::string> required(r.tactic.required.begin(), r.tactic.required.end());
  required.insert(made.required.begin(), made.required.end());
  r.required.assign(required.begin(), required.end());
}

BufferId keep_source(const Source& source, const Region& r, Plan& plan) {
  return source.empty() ? -1 : add(BufferKind::source, tensor_of(source.text), kHost, r.name + " (code)", plan);
}

void keep_code(std::string_view code, const Region& r, Plan& plan) {
  Buffer& b = plan.buffers[static_cast<std::size_t>(r.code)];
  b.kind = BufferKind::constant;
  b.data = tensor_of(code);
  b.bytes = static_cast<std::int64_t>(code.size());
}

Status check_compiled(const Plan& plan) {
  for (const Region& r : plan.regions) {
    if (r.code >= 0 && plan.buffers[static_cast<std::size_t>(r.code)].kind == BufferKind::source)
      return fail(
          ErrorKind::internal,
          fmt::format("region \"{}\", tactic {}: its source is not compiled; Provider::finish does that", r.name, r.tactic.name()));
  }
  return {};
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
