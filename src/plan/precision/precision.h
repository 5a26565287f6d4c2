// In which type each weighted operator computes, where the caller's ranges and allowed types leave a choice.
//
// First --max-error: as many permitted layers as needed stay float32, by their error a microsecond. Then, from effort 2 on, times
// decide: the choice `precision` (int8, float32, bfloat16) and the choice `inner-view`. Where costs can run whole plans, these
// have the last word on each type that was chosen.
#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "plan/context.h"
#include "plan/precision/permit.h"
#include "plan/search/search.h"
#include "rewrite/rule.h"

namespace octavo::plan {

/// The network with the views that a choice permits, in normal form.
struct Form {
  ir::Graph graph;
  PermitReport permitted;
  std::vector<rewrite::RunReport> reports;
};

struct PrecisionWork {
  std::function<Result<Form>(const PermitChoices&)> form;
  std::function<Result<ir::Graph>()>
      exact;  ///< the network without any permitted view, in float32: what errors are measured against
  PlanContext context;
};

struct Precisions {
  Form form;
  PermitChoices choices;  ///< that `form` was made with
  Searched searched;
};

/// Deterministic for deterministic costs. Errors: those of the parts; `unsupported` when bfloat16 is demanded and no kernel here
/// computes in it; `usage` when not even float32 is within --max-error. Cost: with --max-error, where the default exceeds it, at
/// most 2 * layers + 12 evaluations of the network by the reference (layers: those that a range permits, element-wise and pooling
/// operators that read through a range counted, at most 256: beyond, neighbours are taken as one); without it none.
[[nodiscard]] Result<Precisions> choose_precisions(const PrecisionWork& work);

}  // namespace octavo::plan
