// Candidate tactics:  the plan that measurements chose  <==>  the plan of effort 0, for which nothing was measured
//   Why    regions are timed one at a time, and tactics that are fastest alone may not be fastest together.
//   Exact  yes: the same regions up to the planner's choices, by other kernels.
//   Needs  effort 2 or more, times of whole plans, and no pinned tactic in either plan.
//   Order  last. Default: what was measured, unless whole runs are more than 0.5 % slower.
#pragma once

#include "base/result.h"
#include "ir/graph.h"
#include "plan/options.h"
#include "plan/plan.h"

namespace octavo::plan {

/// Tactics are timed a region at a time; beside each other they need not be the fastest. Where the effort compares plans, `costs` can
/// run them and no tactic is pinned, the plan of effort 0 runs in turn with `planned` and takes its place if it is faster by more than
/// 0.5 %. A Decision "tactics" then says so with both times, and the tactics of its regions are timed, as many as the effort times.
/// Cost: one more plan, and a comparison that the costs remember; where the plan of effort 0 is taken, that plan once more and the times of its
/// regions. Errors: those of the parts.
[[nodiscard]] Status guard(const ir::Graph& g, const PlanContext& context, const PlanOnce& plan_once, Planned& planned);

}  // namespace octavo::plan
