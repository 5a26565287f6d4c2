// Whole plans decide what the search may change (plan/search/whole_runs.h).
#pragma once

#include "base/result.h"
#include "ir/graph.h"
#include "plan/context.h"
#include "plan/search/search.h"

namespace octavo::plan {

/// Finishes `searched.best`. Where the effort compares plans, it is not the default one, and the costs can run plans, both run in turn; the
/// searched plan stays only if it is faster by more than 1 %. If it is not, its choices are tried one name at a time, then those that
/// were faster together. Decisions that are undone record both times. At most 2 + choices comparisons. Errors: those of the
/// parts; a miss in strict mode.
[[nodiscard]] Status confirm(const ir::Graph& normalized, const PlanContext& context, Searched& searched);

}  // namespace octavo::plan
