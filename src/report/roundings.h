// Roundings that a placement of Q/DQ demands inside regions: which ONNX nodes, where, and what they cost.
#pragma once

#include <string>
#include <vector>

#include "plan/advice/price_roundings.h"

namespace octavo::report {

/// A line or two each, and what leaving out all would change. `measured`: what the times are.
[[nodiscard]] std::string text(const plan::Roundings& roundings, bool measured);
/// The same for programs; keys sorted. A time that nobody has is left out.
[[nodiscard]] std::string to_json(const plan::Roundings& roundings, bool measured);
/// One line for `explain`'s summary, without times; says so when there is none.
[[nodiscard]] std::string summary(const std::vector<plan::Rounding>& roundings);

}  // namespace octavo::report
