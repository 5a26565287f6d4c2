#include "tune/one_region.h"

#include <map>

#include "region/artifact.h"

namespace octavo::tune {
namespace {

using region::Buffer;
using region::BufferId;
using region::BufferKind;
using region::Plan;
using region::Region;
using region::TensorRef;

template <class F>
void each_ref(Region& r, F f) {
  for (region::Stage& s : r.stages) {
    for (TensorRef& t : s.anchor.inputs) f(t);
    if (s.anchor.weights) f(*s.anchor.weights);
    for (region::Operand& o : s.operands) f(o.ref);
    for (TensorRef& t : s.stores) f(t);
  }
}

class Cutter {
 public:
  Cutter(const Plan& from) : from_(from) {}
  Plan out;

  void adopt(Region& r, std::map<BufferId, BufferId>& constants) {
    each_ref(r, [&](TensorRef& t) {
      const Buffer& b = from_.buffers[static_cast<std::size_t>(t.buffer)];
      t.buffer = b.kind == BufferKind::constant ? take(t.buffer, constants) : take(t.buffer, shared_);
    });
  }

 private:
  BufferId take(BufferId id, std::map<BufferId, BufferId>& known) {
    const auto found = known.find(id);
    if (found != known.end()) return found->second;
    Buffer b = from_.buffers[static_cast<std::size_t>(id)];
    if (b.kind == BufferKind::arena) {
      constexpr std::int64_t kSlack = 64;
      b.arena_offset = out.devices[region::kHost].arena_bytes + kSlack;
      out.devices[region::kHost].arena_bytes += (b.bytes + 63) / 64 * 64 + 2 * kSlack;
    }
    if (b.kind == BufferKind::input) {
      out.inputs.push_back(from_.inputs[static_cast<std::size_t>(b.binding)]);
      b.binding = static_cast<int>(out.inputs.size()) - 1;
    }
    if (b.kind == BufferKind::output) {
      out.outputs.push_back(from_.outputs[static_cast<std::size_t>(b.binding)]);
      b.binding = static_cast<int>(out.outputs.size()) - 1;
    }
    out.buffers.push_back(std::move(b));
    return known[id] = static_cast<BufferId>(out.buffers.size() - 1);
  }

  const Plan& from_;
  std::map<BufferId, BufferId> shared_;
};

}  // namespace

Result<Plan> one_region(const Region& region, const Plan& plan, const region::Provider& provider, int copies) {
  Cutter cutter(plan);
  cutter.out.threads = plan.threads;
  for (int c = 0; c < copies; ++c) {
    Region r = region;
    r.packed.clear();
    r.alternatives.clear();
    std::map<BufferId, BufferId> constants;
    cutter.adopt(r, constants);
    OCTAVO_TRY(region::Artifact made, provider.compile(r, cutter.out, r.tactic));
    region::keep_artifact(std::move(made), r, cutter.out);
    cutter.out.regions.push_back(std::move(r));
  }
  return std::move(cutter.out);
}

std::size_t constant_bytes(const Region& region, const Plan& plan) {
  Region r = region;
  std::map<BufferId, std::size_t> seen;
  each_ref(r, [&](TensorRef& t) {
    const Buffer& b = plan.buffers[static_cast<std::size_t>(t.buffer)];
    if (b.kind == BufferKind::constant) seen[t.buffer] = static_cast<std::size_t>(b.bytes);
  });
  std::size_t sum = 0;
  for (const auto& [id, bytes] : seen) sum += bytes;
  return sum;
}

}  // namespace octavo::tune
