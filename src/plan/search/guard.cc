#include "plan/search/guard.h"

#include <algorithm>

#include "plan/search/whole_runs.h"
#include "region/region.h"

namespace octavo::plan {

Status guard(const ir::Graph& g, const PlanContext& context, const PlanOnce& plan_once, Planned& planned) {
  if (context.options.effort < 2 || !context.enabled("tactics") || planned.plan.cost_source == "estimates") return {};
  const auto pinned = [&](const region::Region& r) { return context.costs.pinned(r, planned.plan).has_value(); };
  if (std::any_of(planned.plan.regions.begin(), planned.plan.regions.end(), pinned)) return {};
  PlanOptions plain = context.options;
  plain.effort = 0;
  plain.costs = nullptr;
  Estimates estimates;
  OCTAVO_TRY(auto unmeasured, plan_once(g, {context.providers, plain, estimates}));
  if (region::plan_hash(unmeasured.plan) == region::plan_hash(planned.plan)) return {};
  OCTAVO_TRY(const auto times, run_in_turn(unmeasured.plan, planned.plan, context));
  if (!times || !times->slower()) return {};
  region::Decision d;
  d.choice = "tactics";
  d.where = planned.plan.model_name;
  d.candidates = {{"measured", times->other, {because<Cause::measured_region_by_region>()}},
                  {"estimated", times->base, {because<Cause::plan_of_effort_0>()}}};
  d.chosen = 1;
  d.reasons = {because<Cause::whole_plan_of_measured_slower>()};
  for (region::Decision& old : planned.plan.decisions) {
    if (old.chosen == 0) continue;
    old.reasons.insert(old.reasons.begin(), because<Cause::taken_back_with_all>("tactics"));
    old.chosen = 0;
  }
  unmeasured.plan.decisions = std::move(planned.plan.decisions);
  unmeasured.plan.decisions.push_back(std::move(d));
  unmeasured.plan.cost_source = planned.plan.cost_source;
  unmeasured.seconds = times->base;
  planned = std::move(unmeasured);
  return {};
}

}  // namespace octavo::plan
