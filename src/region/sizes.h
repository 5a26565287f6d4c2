// Sizes that data decide, of the outputs of a plan (ir/output_sizes.h).
#pragma once

#include <cstdint>
#include <span>

#include "ir/output_sizes.h"
#include "region/region.h"

namespace octavo::region {

/// How many of the plan's outputs are results of the model: the first ones.
[[nodiscard]] inline std::size_t shown_outputs(const Plan& plan) {
  return ir::shown_outputs(plan.outputs.size(), plan.sizes);
}
/// The shape of such an output when the outputs behind them hold `counts`: at most its extents.
[[nodiscard]] inline ir::Shape shape_after(const Plan& plan, std::size_t output, std::span<const std::int64_t> counts) {
  return ir::shape_after(plan.outputs[output].type.shape, output, plan.sizes, shown_outputs(plan), counts);
}

}  // namespace octavo::region
