#include "plan/layout/transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/causes/plan_layout.h"
#include "region/tensor_ref.h"

namespace octavo::plan {
namespace {

using region::Buffer;
using region::BufferId;
using region::BufferKind;
using region::DeviceId;
using region::kHost;
using region::Plan;
using region::Region;
using region::Stage;
using region::TensorRef;

/// All bytes of a buffer.
TensorRef whole(const Plan& plan, BufferId id) {
  TensorRef t;
  t.buffer = id;
  t.dtype = ir::DType::u8;
  t.dims = {plan.buffers[static_cast<std::size_t>(id)].bytes};
  t.strides = {1};
  t.value = plan.buffers[static_cast<std::size_t>(id)].name;
  return t;
}

class Inserter {
 public:
  explicit Inserter(Plan& plan) : plan_(plan), original_(plan.buffers.size()), valid_(plan.buffers.size()) {
    for (std::size_t i = 0; i < original_; ++i) {
      if (plan.buffers[i].kind == BufferKind::input) valid_[i] = {kHost};
    }
  }

  void run() {
    std::vector<Region> regions = std::move(plan_.regions);
    plan_.regions.clear();
    for (Region& r : regions) {
      for (Stage& s : r.stages) {
        for (TensorRef& t : s.anchor.inputs) read(t, r);
        if (s.anchor.weights) read(*s.anchor.weights, r);
        for (region::Operand& o : s.operands) read(o.ref, r);
        for (TensorRef& t : s.stores) store(t, r);
      }
      plan_.regions.push_back(std::move(r));
    }
    for (std::size_t i = 0; i < original_; ++i) {
      const auto id = static_cast<BufferId>(i);
      if (plan_.buffers[i].kind == BufferKind::output && !valid_[i].empty()) bring(id, kHost, because<cause::output_is_on_host>());
    }
  }

 private:
  [[nodiscard]] const Buffer& buffer(BufferId id) const { return plan_.buffers[static_cast<std::size_t>(id)]; }
  std::set<DeviceId>& valid(BufferId id) { return valid_[static_cast<std::size_t>(id)]; }

  /// The buffer's bytes in the memory of `device`: itself, or a buffer of its own.
  BufferId in(BufferId id, DeviceId device) {
    const BufferKind kind = buffer(id).kind;
    if (kind == BufferKind::arena && homes_.emplace(id, device).first->second == device) {
      plan_.buffers[static_cast<std::size_t>(id)].space = device;
      return id;
    }
    if (kind != BufferKind::arena && device == kHost) return id;
    const auto [found, fresh] = copies_.emplace(std::pair(id, device), static_cast<BufferId>(plan_.buffers.size()));
    if (!fresh) return found->second;
    Buffer copy = buffer(id);
    copy.space = device;
    if (kind != BufferKind::constant) copy.kind = BufferKind::arena;
    copy.binding = -1;
    plan_.buffers.push_back(std::move(copy));
    return found->second;
  }

  void transfer(BufferId id, DeviceId from, DeviceId to, const Reason& why) {
    const BufferId source = in(id, from), target = in(id, to);
    Region r;
    const auto name = [&](DeviceId d) { return plan_.devices[static_cast<std::size_t>(d)].name; };
    r.name = fmt::format("{}: {} to {}", buffer(id).name, name(from), name(to));
    r.device = from == kHost ? to : from;
    r.precision = region::Work::transfer;
    r.reasons = {because<cause::in_memory_of>(buffer(id).name, name(from)), why};
    Stage s;
    s.anchor.op = ir::Op::reshape;
    s.anchor.facts = ir::Reshape{};
    s.anchor.inputs = {whole(plan_, source)};
    s.stores = {whole(plan_, target)};
    s.space = s.stores[0].dims;
    r.stages = {std::move(s)};
    plan_.regions.push_back(std::move(r));
    valid(id).insert(to);
  }

  /// Makes what the buffer holds now available on the device.
  void bring(BufferId id, DeviceId device, const Reason& why) {
    if (valid(id).contains(device)) return;
    const DeviceId from = *valid(id).begin();  // the host where it is there
    if (from != kHost && device != kHost) transfer(id, from, kHost, why);
    transfer(id, valid(id).contains(kHost) ? kHost : from, device, why);
  }

  Reason used_by(const Region& r) const {
    return because<cause::region_runs_on>(r.name, plan_.devices[static_cast<std::size_t>(r.device)].name);
  }

  void read(TensorRef& t, const Region& r) {
    const BufferId id = t.buffer;
    if (buffer(id).kind != BufferKind::constant && !valid(id).empty()) bring(id, r.device, used_by(r));
    t.buffer = in(id, r.device);
  }

  /// Storing a part of a buffer keeps the rest: that must be there.
  void store(TensorRef& t, const Region& r) {
    const BufferId id = t.buffer;
    const bool all = tensor_bytes(t) == buffer(id).bytes;
    if (!all && !valid(id).empty()) bring(id, r.device, used_by(r));
    valid(id) = {r.device};
    t.buffer = in(id, r.device);
  }

  Plan& plan_;
  std::size_t original_;                                      ///< buffers before this pass
  std::vector<std::set<DeviceId>> valid_;                     ///< of an original buffer: where its present contents are
  std::map<BufferId, DeviceId> homes_;                        ///< arena: the device that named it first
  std::map<std::pair<BufferId, DeviceId>, BufferId> copies_;  ///< buffers added for further devices
};

}  // namespace

void add_transfers(region::Plan& plan) {
  if (std::all_of(plan.regions.begin(), plan.regions.end(), [](const Region& r) { return r.device == kHost; })) return;
  Inserter(plan).run();
}

}  // namespace octavo::plan
