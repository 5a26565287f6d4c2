// Text about the roundings that a placement of Q/DQ demands inside regions: their ONNX nodes, places and costs.
#pragma once

#include <string>
#include <vector>

#include "plan/advice/price_roundings.h"

namespace octavo::report {

/// One or two lines for each, and the change if all are left out. `measured`: whether the times are measured or estimated.
[[nodiscard]] std::string text(const plan::Roundings& roundings, bool measured);
/// The same as JSON; keys sorted. Unknown times are left out.
[[nodiscard]] std::string to_json(const plan::Roundings& roundings, bool measured);
/// One line for the summary of `explain`, without times, also if there are none.
[[nodiscard]] std::string summary(const std::vector<plan::Rounding>& roundings);

}  // namespace octavo::report
