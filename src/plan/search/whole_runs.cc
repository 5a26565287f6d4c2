#include "plan/search/whole_runs.h"

#include "base/causes/plan_search.h"
#include "base/task.h"

namespace octavo::plan {

Result<std::optional<WholeRuns>> run_in_turn(const region::Plan& base, const region::Plan& other, const PlanContext& context) {
  OCTAVO_CHECK(begin_step("plan: two whole plans, run in turn"));
  OCTAVO_TRY(const auto pair, context.costs.compare(base, other));
  if (!pair) return std::optional<WholeRuns>();
  return std::optional(WholeRuns{pair->first, pair->second});
}

void take_back(region::Decision& decision, std::size_t to, const WholeRuns& times) {
  if (decision.chosen == to) return;
  decision.reasons = {because<cause::whole_plan_slower>(decision.candidates[decision.chosen].name, times.other, times.base)};
  decision.chosen = to;
}

}  // namespace octavo::plan
