#include "plan/search/guard.h"

#include <algorithm>

#include "plan/search/margins.h"
#include "region/region.h"

namespace octavo::plan {

Status guard(const ir::Graph& g, const PlanOptions& options, Costs& costs, const MakePlan& make, Planned& planned) {
  if (options.effort < 2 || options.disabled.contains("tactics") || planned.plan.cost_source == "estimates") return {};
  const auto pinned = [&](const region::Region& r) { return costs.pinned(r, planned.plan).has_value(); };
  if (std::any_of(planned.plan.regions.begin(), planned.plan.regions.end(), pinned)) return {};
  PlanOptions plain = options;
  plain.effort = 0;
  plain.costs = nullptr;
  OCTAVO_TRY(auto unmeasured, make(g, plain));
  if (region::plan_hash(unmeasured.plan) == region::plan_hash(planned.plan)) return {};
  OCTAVO_TRY(const auto pair, costs.compare(unmeasured.plan, planned.plan));
  if (!pair || pair->second <= kSlower * pair->first) return {};
  region::Decision d;
  d.kind = "tactics";
  d.where = planned.plan.model_name;
  d.chosen = "estimated";
  d.answers = {{"estimated", pair->first, "what effort 0 takes"}, {"measured", pair->second, "region by region"}};
  d.reason = "whole runs of what was measured region by region are slower";
  for (region::Decision& old : planned.plan.decisions) {
    if (old.answers.empty() || old.chosen == old.answers[0].name) continue;
    old.reason = "taken back with all others (tactics): " + old.reason;
    old.chosen = old.answers[0].name;
  }
  unmeasured.plan.decisions = std::move(planned.plan.decisions);
  unmeasured.plan.decisions.push_back(std::move(d));
  unmeasured.plan.cost_source = planned.plan.cost_source;
  unmeasured.seconds = pair->first;
  planned = std::move(unmeasured);
  return {};
}

}  // namespace octavo::plan
