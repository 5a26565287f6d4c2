#include "plan/candidates/neighbours.h"

#include <algorithm>
#include <map>

#include "base/causes/plan_candidates.h"
#include "base/causes/plan_regions.h"
#include "plan/candidates/stages.h"

namespace octavo::plan {
namespace {

using region::BufferId;
using region::Plan;
using region::Region;
using region::Stage;
using region::TensorRef;

template <class F>
void each_read(const Region& r, F f) {
  for (const Stage& s : r.stages) {
    for (const TensorRef& in : s.anchor.inputs) f(in);
    for (const auto& o : s.operands) f(o.ref);
  }
}
template <class F>
void each_store(const Region& r, F f) {
  for (const Stage& s : r.stages) {
    for (const TensorRef& out : s.stores) f(out);
  }
}
bool in_16_bits(const TensorRef& t) {
  return t.dtype == ir::DType::f16 || t.dtype == ir::DType::bf16;
}
bool reads(const Region& r, BufferId b) {
  bool found = false;
  each_read(r, [&](const TensorRef& t) { found = found || t.buffer == b; });
  return found;
}

/// True if the members (ascending) can run in the last one's place: nothing up to there reads what one of them stores, nor does a member read a buffer that it or
/// another one stores to, as a part of a concatenation that is made from another part.
bool can_run_side_by_side(const Plan& plan, const std::vector<std::size_t>& members) {
  for (const std::size_t m : members) {
    for (std::size_t k = members.front(); k <= members.back(); ++k) {
      if (k <= m && !std::binary_search(members.begin(), members.end(), k)) continue;  // runs before it as ever
      bool clash = false;
      each_store(plan.regions[m], [&](const TensorRef& t) { clash = clash || reads(plan.regions[k], t.buffer); });
      if (clash) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<Neighbours> find_neighbours(const Plan& plan) {
  std::map<BufferId, std::vector<std::size_t>> convs, parts;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const Region& r = plan.regions[i];
    if (r.stages.size() != 1 || r.graph_outputs.empty()) continue;
    const Stage& s = r.stages[0];
    if (s.anchor.op == ir::Op::conv && (s.anchor.integer || in_16_bits(s.anchor.inputs[0])))
      convs[s.anchor.inputs[0].buffer].push_back(i);
    if (s.anchor.none() && s.stores.size() == 1) parts[s.stores[0].buffer].push_back(i);
  }
  std::vector<Neighbours> out;
  const auto add = [&](const auto& by_buffer, const char* kind) {
    for (const auto& [buffer, list] : by_buffer) {
      std::vector<std::size_t> members;
      for (const std::size_t i : list) {
        if (!members.empty() && plan.regions[i].device != plan.regions[members[0]].device) continue;
        members.push_back(i);
        if (members.size() > 8 || !can_run_side_by_side(plan, members)) members.pop_back();
      }
      if (members.size() > 1) out.push_back({members, kind});
    }
  };
  add(convs, "horizontal");
  add(parts, "one-pass");
  std::sort(out.begin(), out.end(), [](const Neighbours& a, const Neighbours& b) { return a.regions < b.regions; });
  return out;
}

std::vector<std::set<ir::ValueId>> layers_side_by_side(const Plan& plan) {
  std::vector<std::set<ir::ValueId>> out;
  for (const Neighbours& n : find_neighbours(plan)) {
    const Stage& first = plan.regions[n.regions[0]].stages[0];
    if (first.anchor.none()) continue;
    const bool linear = first.anchor.integer && ir::count(first.space) == first.space[0] * first.space[1];
    if (!linear && !in_16_bits(first.anchor.inputs[0])) continue;
    std::set<ir::ValueId> values;
    for (const std::size_t i : n.regions) values.insert(plan.regions[i].graph_outputs[0]);
    out.push_back(std::move(values));
  }
  return out;
}

Reasons join_side_by_side(Plan& plan, const std::set<ir::ValueId>& values, const std::vector<const region::Provider*>& providers) {
  std::vector<std::size_t> members;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const Region& r = plan.regions[i];
    if (r.stages.size() == 1 && !r.graph_outputs.empty() && values.contains(r.graph_outputs[0])) members.push_back(i);
  }
  if (members.size() < 2) return {because<cause::regions_not_there>()};
  if (!can_run_side_by_side(plan, members))
    return {because<cause::result_needed_between>()};  // other choices may have changed who reads what
  Region all;
  all.independent = true;
  all.device = plan.regions[members[0]].device;
  all.reasons.push_back(because<cause::grouped_side_by_side>(members.size()));
  for (const std::size_t m : members) {
    const Region& r = plan.regions[m];
    all.name += (all.name.empty() ? "" : " | ") + r.name;
    add(all.reasons, r.reasons);
    all.precision = all.stages.empty() || all.precision == r.precision ? r.precision : region::Precision(region::Work::mixed);
    all.onnx_nodes.insert(r.onnx_nodes.begin(), r.onnx_nodes.end());
    all.stages.push_back(r.stages[0]);
    all.graph_inputs.insert(all.graph_inputs.end(), r.graph_inputs.begin(), r.graph_inputs.end());
    all.graph_outputs.insert(all.graph_outputs.end(), r.graph_outputs.begin(), r.graph_outputs.end());
  }
  if (Reasons why = refusal(all, plan, providers); !why.empty()) return why;
  plan.regions[members.back()] = std::move(all);
  members.pop_back();
  for (std::size_t k = members.size(); k-- > 0;) plan.regions.erase(plan.regions.begin() + static_cast<std::ptrdiff_t>(members[k]));
  return {};
}

}  // namespace octavo::plan
