#include "plan/advice/node_times.h"

#include <algorithm>

namespace octavo::plan {
namespace {

bool weighted(const region::Region& r) {
  return std::any_of(r.stages.begin(), r.stages.end(), [](const region::Stage& s) { return s.anchor.weights.has_value(); });
}

}  // namespace

Result<NodeTimes> node_times(Pricer& pricer, const region::Plan& plan, const std::set<std::string>& nodes, bool anchored_only) {
  OCTAVO_TRY(const auto items, pricer.price(plan));
  NodeTimes out;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    if (anchored_only && !weighted(plan.regions[i])) continue;
    for (const std::string& node : plan.regions[i].onnx_nodes) {
      if (nodes.contains(node)) out.emplace(node, items[i].seconds);
    }
  }
  return out;
}

std::string why_no_kernel(const region::Region& r, const region::Plan& plan,
                          const std::vector<const region::Provider*>& providers) {
  std::string why = "no tactic computes this operator in bfloat16";
  for (const region::Provider* p : providers) {
    for (const region::Offer& o : p->offers(r, plan)) {
      if (o.refusal.empty()) return "";
      if (o.tactic.family.find("bf16") != std::string::npos) why = o.tactic.name() + ": " + o.refusal;
    }
  }
  return why;
}

}  // namespace octavo::plan
