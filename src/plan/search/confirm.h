// Whole plans decide. The sum of regions' times, each measured alone, is a forecast: beside each other regions share caches, and
// small gains vanish in what a measurement cannot tell apart.
#pragma once

#include <functional>

#include "base/result.h"
#include "ir/graph.h"
#include "plan/options.h"
#include "plan/search/cost.h"
#include "plan/search/search.h"

namespace octavo::plan {

struct ConfirmWork {
  const ir::Graph& normalized;
  const std::vector<const region::Provider*>& providers;
  const PlanOptions& options;
  Costs& costs;
  std::function<Status(Realized&)> finish;  ///< tactics, packed constants, memory
};

/// From effort 2 on, where the searched plan is not the default one and `costs` can run plans: both run in turn, and the searched
/// plan stays only if it is faster by more than 1 %. If it is not, the kinds of answers are tried one kind at a time, then those
/// that were faster together. Afterwards `best` is finished, and decisions that were taken back say so with both times. At most 2 +
/// kinds comparisons, remembered by the costs like other times. Errors: those of the parts; a miss in strict mode.
[[nodiscard]] Status confirm(const ConfirmWork& work, Searched& searched);

}  // namespace octavo::plan
