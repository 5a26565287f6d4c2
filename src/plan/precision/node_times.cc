#include "plan/precision/node_times.h"

#include <algorithm>

#include "base/causes/plan_candidates.h"

namespace octavo::plan {
namespace {

bool anchored(const region::Region& r) {
  return std::any_of(r.stages.begin(), r.stages.end(),
                     [](const region::Stage& s) { return s.anchor.weights.has_value() || s.anchor.op == ir::Op::matmul; });
}

}  // namespace

Result<NodeTimes> node_times(Pricer& pricer, const region::Plan& plan, const std::set<std::string>& nodes, bool anchored_only) {
  OCTAVO_TRY(const auto items, pricer.price(plan));
  NodeTimes out;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    if (anchored_only && !anchored(plan.regions[i])) continue;
    for (const std::string& node : plan.regions[i].onnx_nodes) {
      if (nodes.contains(node)) out.emplace(node, items[i].seconds);
    }
  }
  return out;
}

Reasons refusals_of(const region::Region& r, const region::Plan& plan, const PlanContext& context) {
  Reasons out;
  for (const region::Provider* p : context.providers) {
    for (const region::Offer& o : p->offers(r, plan)) {
      if (o.refusal.empty()) return {};
      out.push_back(because<cause::kernel_refused>(o.tactic.name()));
      add(out, o.refusal);
    }
  }
  if (out.empty()) out.push_back(because<cause::no_provider_for_region>());
  return out;
}

}  // namespace octavo::plan
