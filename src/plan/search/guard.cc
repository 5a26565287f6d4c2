#include "plan/search/guard.h"

#include <algorithm>
#include <map>
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

/// Regions of both plans get the times that were measured for the other one: nothing else says what the alternatives cost. The tactic stays.
void keep_measured_times(const region::Plan& measured, region::Plan& plan) {
  std::map<std::string, const region::Region*> of_key;
  for (const region::Region& r : measured.regions) of_key.emplace(r.key, &r);
  for (region::Region& r : plan.regions) {
    const auto found = of_key.find(r.key);
    if (found == of_key.end()) continue;
    for (const region::Alternative& known : found->second->alternatives) {
      if (known.seconds < 0) continue;
      const auto same = std::find_if(r.alternatives.begin(), r.alternatives.end(),
                                     [&](const region::Alternative& a) { return a.tactic == known.tactic; });
      if (same != r.alternatives.end()) {
        same->seconds = known.seconds, same->estimate = -1;
      } else {
        r.alternatives.push_back({known.tactic, {because<cause::whole_plan_of_measured_slower>()}, known.seconds});
      }
      if (known.tactic == r.tactic.name()) r.seconds = known.seconds;
    }
  }
}

}  // namespace

Status guard(const ir::Graph& g, const PlanContext& context, const PlanOnce& plan_once, Planned& planned) {
  if (!effort_at(context.options.effort).compares_plans || !context.enabled(kTactics) ||
      context.costs.source() == CostSource::estimates)
    return {};
  const auto pinned = [&](const region::Region& r) { return context.costs.pinned(r, planned.plan).has_value(); };
  if (std::any_of(planned.plan.regions.begin(), planned.plan.regions.end(), pinned)) return {};
  PlanOptions plain = context.options;
  plain.effort = kEstimates;
  plain.costs = nullptr;
  Estimates estimates;
  OCTAVO_TRY(auto unmeasured, plan_once(g, {context.providers, plain, estimates, context.memo}));
  if (region::plan_hash(unmeasured.plan) == region::plan_hash(planned.plan)) return {};
  OCTAVO_TRY(const auto times, run_in_turn(unmeasured.plan, planned.plan, context));
  if (!times || !times->slower()) return {};
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
  keep_measured_times(planned.plan, unmeasured.plan);
  unmeasured.seconds = times->base;
  planned = std::move(unmeasured);
  return {};
}

}  // namespace octavo::plan
