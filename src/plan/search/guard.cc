#include "plan/search/guard.h"

#include <algorithm>
#include <string>

#include "base/causes/plan_search.h"
#include "plan/candidates/registry.h"
#include "plan/effort.h"
#include "plan/search/whole_runs.h"
#include "region/region.h"

namespace octavo::plan {
namespace {

/// The decisions of the plan without times, which stands now, and those that only the search with times made: it took them back.
std::vector<region::Decision> decisions_of_both(std::vector<region::Decision> kept, std::vector<region::Decision> dropped) {
  const std::size_t own = kept.size();
  for (region::Decision& d : dropped) {
    const bool known = std::any_of(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(own),
                                   [&](const region::Decision& k) { return k.choice == d.choice && k.where == d.where; });
    if (known) continue;
    if (d.chosen != 0) {
      d.reasons.insert(d.reasons.begin(), because<cause::taken_back_with_all>("tactics"));
      d.chosen = 0;
    }
    kept.push_back(std::move(d));
  }
  return kept;
}

}  // namespace

Status guard(const ir::Graph& g, const PlanContext& context, const PlanOnce& plan_once, Planned& planned) {
  if (!effort_at(context.options.effort).compares_plans || !context.enabled(kTactics) ||
      context.costs.source() == CostSource::estimates)
    return {};
  const auto pinned = [&](const region::Plan& plan) {
    return std::any_of(plan.regions.begin(), plan.regions.end(),
                       [&](const region::Region& r) { return context.costs.pinned(r, plan).has_value(); });
  };
  if (pinned(planned.plan)) return {};
  PlanOptions plain = context.options;
  plain.effort = kEstimates;
  plain.costs = nullptr;
  Estimates estimates;
  OCTAVO_TRY(auto unmeasured, plan_once(g, {context.providers, plain, estimates, context.memo}));
  if (region::plan_hash(unmeasured.plan) == region::plan_hash(planned.plan) || pinned(unmeasured.plan)) return {};
  OCTAVO_TRY(const auto times, run_in_turn(unmeasured.plan, planned.plan, context));
  if (!times || !times->slower()) return {};
  // The same plan again: only regions of the other one were timed so far, and every region says what its alternatives cost.
  OCTAVO_TRY(unmeasured, plan_once(g, {context.providers, plain, estimates, context.memo, &context.costs}));
  region::Decision d;
  d.choice = kTactics;
  d.where = planned.plan.model_name;
  d.candidates = {{"measured", times->other, {because<cause::measured_region_by_region>()}},
                  {"estimated", times->base, {because<cause::plan_of_effort_0>()}}};
  d.chosen = 1;
  d.reasons = {because<cause::whole_plan_of_measured_slower>()};
  unmeasured.plan.decisions = decisions_of_both(std::move(unmeasured.plan.decisions), std::move(planned.plan.decisions));
  unmeasured.plan.decisions.push_back(std::move(d));
  unmeasured.plan.cost_source = planned.plan.cost_source;
  unmeasured.seconds = times->base;
  planned = std::move(unmeasured);
  return {};
}

}  // namespace octavo::plan
