// Times and kernels of a plan's regions by the ONNX nodes that they compute.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/search/price.h"
#include "region/provider.h"

namespace octavo::plan {

/// Seconds of the region that computes an ONNX node, by the node's name.
using NodeTimes = std::map<std::string, double>;
/// Of those in `nodes`. `anchored_only`: regions with constant weights, or a product of two matrices, alone. Errors: those of the pricer.
[[nodiscard]] Result<NodeTimes> node_times(Pricer& pricer, const region::Plan& plan, const std::set<std::string>& nodes,
                                           bool anchored_only = true);
/// What every provider says to a region that none of them can run; empty: one can.
[[nodiscard]] Reasons refusals_of(const region::Region& r, const region::Plan& plan, const PlanContext& context);

}  // namespace octavo::plan
