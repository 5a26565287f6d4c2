// The search for the cheapest answers.
//
// Every answer is first priced alone, against the default choices. Answers that touch a common region form a component; components
// do not influence each other. Effort 2 takes answers greedily, best first, and prices the sum again each time. Effort 3 and more
// enumerates the combinations of a component when there are at most 64, and keeps a beam of 2 (effort 3), 4 or 8 partial
// combinations otherwise. An answer is taken only if it saves more than 2 % of the regions it changes. The result never costs more
// than the default choices.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "plan/candidates/choices.h"
#include "plan/search/cost.h"

namespace octavo::plan {

/// An answer that was taken, other than the default.
struct Taken {
  std::string kind;  ///< of its question
  std::function<void(Choices&)> apply;
};
struct Searched {
  Realized best, defaults;
  Choices default_choices;
  std::vector<Taken> taken;  ///< what makes `best` of the default choices
  std::vector<region::Decision> decisions;
  double default_seconds = 0, best_seconds = 0;  ///< sums of region prices
  bool changed = false;                          ///< best is not the default plan
};
/// Effort 0 and 1: the default choices, unpriced.
[[nodiscard]] Result<Searched> search(const ir::Graph& normalized, const std::vector<const region::Provider*>& providers,
                                      const PlanOptions& options, Costs& costs);

}  // namespace octavo::plan
