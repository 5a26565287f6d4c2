// How much of a GPU's time goes to layers in float32 that float16 would make faster.
#pragma once

#include <string>

#include "plan/options.h"
#include "region/region.h"

namespace octavo::cli {

/// One line for `build`, if layers in float32 take more than a third of the time that the plan says of its regions, on a GPU, and float16 is not
/// among the allowed types: the share, and the option. Otherwise empty.
[[nodiscard]] std::string float_share(const region::Plan& plan, const plan::PlanOptions& options);

}  // namespace octavo::cli
