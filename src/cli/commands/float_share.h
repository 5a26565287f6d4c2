// What float32 costs a plan, where other options would make it faster: layers on a GPU, and tensors that a placement of Q/DQ keeps in float32.
#pragma once

#include <set>
#include <string>

#include "plan/options.h"
#include "region/region.h"

namespace octavo::cli {

/// One line for `build`, if layers in float32 take more than a third of the time that the plan says of its regions, on a GPU, and float16 is not
/// among the allowed types: the share, and the option. Otherwise empty. Layers of `kept_float32` (PermitReport::kept_wide) do not count: a rule keeps them.
[[nodiscard]] std::string float_share(const region::Plan& plan, const plan::PlanOptions& options,
                                      const std::set<std::string>& kept_float32);

/// Of a model with Q/DQ pairs: what it costs that tensors between regions are float32, and the options that change it (report/float_tensors.h).
/// Empty where there are none.
[[nodiscard]] std::string placement_cost(const region::Plan& plan, const plan::PlanOptions& options);

}  // namespace octavo::cli
