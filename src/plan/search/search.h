// The search for the cheapest selection of candidates.
//
// Every candidate is first priced alone, against the default plan. Candidates that touch a common region form a component; components
// do not influence each other. Combine::greedy takes candidates best first, and prices the sum again each time. Combine::components
// enumerates the combinations of a component when there are at most 64, and keeps a beam of Effort::beam partial
// combinations otherwise. A candidate is taken only if it saves more than 2 % of the regions it changes. The result never costs more
// than the default plan.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/out_of_line.h"
#include "base/result.h"
#include "ir/graph.h"
#include "plan/candidates/choices.h"
#include "plan/cost.h"

namespace octavo::plan {

/// A candidate that was taken, other than the default.
struct Taken {
  std::string choice;  ///< its name
  std::function<void(Selection&)> apply;
};
struct Searched {
  Realized best, defaults;
  Selection default_selection, best_selection;
  std::vector<Taken> taken;  ///< what makes `best` of the defaults
  std::vector<region::Decision> decisions;
  double default_seconds = 0, best_seconds = 0;  ///< sums of region prices
  bool changed = false;                          ///< best is not the default plan
  OCTAVO_OUT_OF_LINE(Searched);
};
/// Where the effort does not search: the default plan, but for choices of PlanOptions::priced; unpriced where it raises none of them.
[[nodiscard]] Result<Searched> search(const ir::Graph& normalized, const PlanContext& context);

}  // namespace octavo::plan
