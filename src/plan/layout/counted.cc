#include "plan/layout/counted.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "ir/output_sizes.h"
#include "plan/layout/gates.h"
#include "plan/layout/memory.h"
#include "plan/layout/needs.h"
#include "region/artifact.h"
#include "region/counted.h"
#include "region/stage_graph.h"

namespace octavo::plan {
namespace {

using ir::Graph;
using ir::Node;
using ir::Op;
using ir::ValueId;

/// The region that stores the buffer; the number of regions if there is none.
std::size_t stored_by(const region::Plan& plan, region::BufferId buffer) {
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    for (const region::Stage& s : plan.regions[i].stages) {
      if (std::any_of(s.stores.begin(), s.stores.end(), [&](const region::TensorRef& t) { return t.buffer == buffer; })) return i;
    }
  }
  return plan.regions.size();
}

/// Packed constants may be made of one that has an entry for each of the elements.
bool packs_counted(const region::Region& r, const std::vector<int>& dims, const region::Plan& plan) {
  if (r.packed.empty()) return false;
  for (std::size_t s = 0; s < r.stages.size(); ++s) {
    const auto k = static_cast<std::size_t>(dims[s]);
    for (const region::Operand& o : r.stages[s].operands) {
      const bool constant = plan.buffers[static_cast<std::size_t>(o.ref.buffer)].kind == region::BufferKind::constant;
      if (constant && k < o.ref.dims.size() && o.ref.dims[k] > 1 && o.ref.strides[k] != 0) return true;
    }
  }
  return false;
}

/// Where the device of the region has what becomes the output.
std::optional<region::BufferId> on_device(const region::Plan& plan, region::BufferId output, region::DeviceId device) {
  for (const region::Region& r : plan.regions) {
    if (!region::is_transfer(r, plan) || r.stages[0].stores[0].buffer != output) continue;
    const region::BufferId from = r.stages[0].anchor.inputs[0].buffer;
    const region::Buffer& b = plan.buffers[static_cast<std::size_t>(from)];
    if (b.space == device && b.kind == region::BufferKind::arena && b.bytes == 8) return from;
  }
  return std::nullopt;
}

/// How long its kernel takes may follow from the values that it reads, which behind a count may be anything.
bool works_by_values(const region::Region& r) {
  return std::any_of(r.stages.begin(), r.stages.end(), [](const region::Stage& s) { return s.anchor.op == Op::roi_align; });
}

void mark_counted(region::Plan& plan, const Graph& graph, std::set<ValueId> whole);

}  // namespace

bool counts(const std::vector<const region::Provider*>& providers) {
  return providers.empty() || providers.front()->device() == region::Plan().devices.front().name;
}

std::set<ir::NodeId> fills_behind_counts(const Graph& graph) {
  if (std::none_of(graph.sizes.begin(), graph.sizes.end(), ir::is_counter)) return {};
  NeedFinder finder(graph);
  finder.find();
  const GateFinder gates(graph);
  /// The operator that the region in front begins with, as far as first operands say.
  const auto first_of = [&](ValueId v) {
    while (ir::has_trait(graph.producer(v).op, ir::kPointwise) && graph.producer(v).inputs[0] != ir::kNone)
      v = graph.producer(v).inputs[0];
    return graph.producer(v).op;
  };
  /// Does an operator compute the value, but for what is computed element by element behind it?
  const auto behind_operator = [&](ValueId value) {
    std::vector<ValueId> open{value};
    std::set<ValueId> seen;
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (v == ir::kNone || !seen.insert(v).second) continue;
      const Node& n = graph.producer(v);
      if (ir::has_trait(n.op, ir::kAnchor)) return true;
      if (ir::has_trait(n.op, ir::kPointwise) && !gates.selects(n)) open.insert(open.end(), n.inputs.begin(), n.inputs.end());
    }
    return false;
  };
  std::set<ir::NodeId> out;
  for (const ir::NodeId id : graph.order()) {
    const Node& n = graph.node(id);
    if (n.op != Op::where && n.op != Op::logical_and) continue;
    if (gates.selects(n) && std::any_of(n.inputs.begin() + 1, n.inputs.end(), behind_operator)) out.insert(id);
    const Needs& all = finder.of(n.outputs[0]);
    for (const ValueId v : n.inputs) {
      const Needs& some = finder.of(v);
      bool fewer = false;
      for (std::size_t d = 0; d < some.size() && some.size() == all.size(); ++d)
        fewer = fewer || (some[d].kind == Need::Kind::some && all[d].kind == Need::Kind::all);
      const Op op = fewer ? first_of(v) : Op::input;
      if (fewer && (op == Op::conv || op == Op::conv_transpose || op == Op::gemm || op == Op::matmul || op == Op::roi_align))
        out.insert(id);
    }
  }
  return out;
}

void mark_counted(region::Plan& plan, const Graph& graph) {
  for (region::Region& r : plan.regions) r.count = -1;
  const bool any = std::any_of(graph.sizes.begin(), graph.sizes.end(), [](const ir::OutputSize& s) { return !ir::is_bound(s); });
  if (!any || plan.images > 1) return;
  // The reference evaluator refuses indices outside of a tensor, which other kernels clamp: what it reads is defined everywhere.
  std::set<ValueId> whole;
  for (const region::Region& r : plan.regions) {
    if (r.tactic.reference) whole.insert(r.graph_inputs.begin(), r.graph_inputs.end());
  }
  for (std::size_t known = whole.size() + 1; known != whole.size();) {
    known = whole.size();
    mark_counted(plan, graph, whole);
    for (const region::Region& r : plan.regions) {
      if (plan.devices.size() > 1 && r.count < 0 && works_by_values(r)) whole.insert(r.graph_inputs.begin(), r.graph_inputs.end());
    }
  }
}

namespace {

void mark_counted(region::Plan& plan, const Graph& graph, std::set<ValueId> whole) {
  for (region::Region& r : plan.regions) r.count = -1;
  whole.erase(ir::kNone);
  NeedFinder finder(graph);
  finder.find(whole);
  std::map<int, region::BufferId> buffer_of;  // by output
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    if (plan.buffers[b].kind == region::BufferKind::output && plan.buffers[b].space == region::kHost)
      buffer_of[plan.buffers[b].binding] = static_cast<region::BufferId>(b);
  }
  const GateFinder gates(graph, whole);
  const auto known_before = [&](std::size_t i, int output) -> std::optional<region::BufferId> {
    const auto found = buffer_of.find(output);
    if (found == buffer_of.end()) return std::nullopt;
    const region::DeviceId device = plan.regions[i].device;
    const auto buffer = device == region::kHost ? std::optional(found->second) : on_device(plan, found->second, device);
    return buffer && stored_by(plan, *buffer) < i ? buffer : std::nullopt;
  };
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    region::Region& r = plan.regions[i];
    const bool host = r.device == region::kHost;
    if (!host && region::searches_counted(r)) continue;  // its kernels read the operand
    if (r.graph_outputs.empty() || region::results_of(r).size() != r.graph_outputs.size()) continue;
    if (const auto gate = host ? gates.output_of(r.graph_outputs) : std::nullopt) {  // all of it or nothing
      if (const auto count = known_before(i, *gate)) {
        r.count = *count, r.count_times = r.count_per = 1;
        for (region::Stage& s : r.stages) s.counted = -1;
        continue;
      }
    }
    std::optional<Extent> extent;
    std::vector<std::size_t> where;
    if (region::searches_counted(r)) {  // as many as it reads; of its results, which say how many there are, readers need fewer
      const auto known = std::find_if(r.graph_outputs.begin(), r.graph_outputs.end(), [](ValueId v) { return v != ir::kNone; });
      if (known == r.graph_outputs.end()) continue;
      const Node& n = graph.producer(*known);
      const auto all_read = [&](ValueId v) {
        return v != ir::kNone && !finder.of(v).empty() && finder.of(v)[0].kind == Need::Kind::all;
      };
      if (n.inputs.size() < 2 || std::any_of(n.outputs.begin(), n.outputs.end(), all_read)) continue;
      extent = finder.extent_of(n.inputs[1]);
      where.assign(r.graph_outputs.size(), 0);
    }
    for (const ValueId v : where.empty() ? r.graph_outputs : std::vector<ValueId>()) {
      if (v == ir::kNone) break;
      const Needs& needs = finder.of(v);
      const ir::Shape& dims = graph.type(v).shape;
      std::size_t d = 0;
      while (d < dims.size() && dims[d] == 1) ++d;
      if (d >= needs.size() || needs[d].kind != Need::Kind::some || (extent && *extent != needs[d].extent)) break;
      extent = needs[d].extent;
      where.push_back(d);
    }
    if (where.size() != r.graph_outputs.size()) continue;
    const auto output = finder.output_of(*extent);
    const auto count = output ? known_before(i, output->first) : std::nullopt;
    if (!count) continue;
    const auto dims = region::searches_counted(r) ? std::optional(std::vector<int>{0}) : region::counted_dims(r, where);
    if (!dims || (host && packs_counted(r, *dims, plan))) continue;
    constexpr std::int64_t kMostFactor = 1 << 28;
    const auto& [times, per] = std::pair(output->second.times, output->second.per);
    if (times > kMostFactor || per > kMostFactor) continue;
    r.count = *count;
    r.count_times = static_cast<std::int32_t>(times), r.count_per = static_cast<std::int32_t>(per);
    for (std::size_t s = 0; s < r.stages.size(); ++s) r.stages[s].counted = (*dims)[s];
    if (!region::clipped(r, 1)) r.count = -1;
  }
}

}  // namespace

Status count_on_devices(region::Plan& plan, const std::vector<const region::Provider*>& providers) {
  bool any = false;
  for (region::Region& r : plan.regions) {
    if (r.count < 0 || r.device == region::kHost) continue;
    const std::string& device = plan.devices[static_cast<std::size_t>(r.device)].name;
    const auto p = std::find_if(providers.begin(), providers.end(),
                                [&](const region::Provider* one) { return one->knows(r.tactic) && one->device() == device; });
    if (p == providers.end())
      return fail(ErrorKind::internal, "region \"" + r.name + "\": nobody knows its tactic " + r.tactic.name());
    OCTAVO_TRY(const region::Artifact made, (*p)->restart(r, plan));
    if (made.constants.size() != r.packed.size())
      return fail(ErrorKind::internal, "region \"" + r.name + "\": its kernels pack other constants where they read a count");
    if (made.launch == r.launch) {  // they do not read it, and compute everything
      r.count = -1, r.count_times = r.count_per = 1;
      for (region::Stage& s : r.stages) s.counted = -1;
      continue;
    }
    any = true;
    r.launch = made.launch;
    region::keep_code(made.source.text, r, plan);
    plan.buffers[static_cast<std::size_t>(r.code)].kind = region::BufferKind::source;
  }
  if (any) plan_memory(plan);
  return {};
}

}  // namespace octavo::plan
