#include "tune/one_region.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

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
  /// For a region of `device`.
  Cutter(const Plan& from, region::DeviceId device) : from_(from), device_(device) {
    out.threads = from.threads;
    out.devices = from.devices;
    for (region::DeviceUse& d : out.devices) d.arena_bytes = 0;
  }
  Plan out;

  /// The region once more, with constants of its own; not yet one of the plan's.
  Region cut(const Region& region) {
    Region r = region;
    r.packed.clear();
    r.code = -1;
    r.alternatives.clear();
    std::map<BufferId, BufferId> constants;
    each_ref(r, [&](TensorRef& t) {
      const Buffer& b = from_.buffers[static_cast<std::size_t>(t.buffer)];
      t.buffer = b.kind == BufferKind::constant ? take(t.buffer, constants) : take(t.buffer, shared_);
    });
    return r;
  }

 private:
  BufferId take(BufferId id, std::map<BufferId, BufferId>& known) {
    const auto found = known.find(id);
    if (found != known.end()) return found->second;
    Buffer b = from_.buffers[static_cast<std::size_t>(id)];
    if (device_ != region::kHost) {  // a device's regions work in its memory alone, whatever is moved there before
      b.space = device_;
      if (b.kind != BufferKind::constant) b.kind = BufferKind::arena, b.binding = -1;
    }
    if (b.kind == BufferKind::arena) {
      constexpr std::int64_t kSlack = 64;
      const std::int64_t unit = std::max<std::int64_t>(b.alignment, kSlack);
      std::int64_t& bytes = out.devices[static_cast<std::size_t>(b.space)].arena_bytes;
      b.arena_offset = (bytes + kSlack + unit - 1) / unit * unit;
      bytes = b.arena_offset + (b.bytes + kSlack - 1) / kSlack * kSlack + kSlack;
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
  region::DeviceId device_;
  std::map<BufferId, BufferId> shared_;
};

}  // namespace

Plan one_region(const Region& region, const Plan& plan, const region::Artifact& artifact, int copies) {
  Cutter cutter(plan, region.device);
  for (int c = 0; c < copies; ++c) {
    Region r = cutter.cut(region);
    region::keep_artifact(artifact, r, cutter.out, region::Equals::apart);
    cutter.out.regions.push_back(std::move(r));
  }
  region::drop_packed_weights(cutter.out);
  return std::move(cutter.out);
}

Result<EveryTactic> every_tactic(const Region& region, const Plan& plan, const std::vector<ProvidedTactic>& candidates,
                                 int threads) {
  const bool transfer = region::is_transfer(region, plan);  // between two memories, which stay what they are
  Cutter cutter(plan, transfer ? region::kHost : region.device);
  const Region common = cutter.cut(region);
  std::vector<Result<region::Artifact>> made(candidates.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < made.size(); i = next++)
      made[i] = candidates[i].provider->compile(common, cutter.out, candidates[i].tactic);
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads && static_cast<std::size_t>(t) < made.size(); ++t) others.emplace_back(work);
  work();
  for (std::thread& t : others) t.join();
  EveryTactic out;
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (!made[i]) continue;
    Region r = common;
    r.tactic = candidates[i].tactic;
    region::keep_artifact(std::move(*made[i]), r, cutter.out, region::Equals::apart);
    cutter.out.regions.push_back(std::move(r));
    out.candidates.push_back(i);
  }
  out.plan = std::move(cutter.out);
  return out;
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
