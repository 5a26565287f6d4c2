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
/// Of those in `nodes`. `anchored_only`: regions with constant weights alone. Errors: those of the pricer.
[[nodiscard]] Result<NodeTimes> node_times(Pricer& pricer, const region::Plan& plan, const std::set<std::string>& nodes,
                                           bool anchored_only = true);
/// Why no provider runs a region in bfloat16, in the words of the nearest tactic; empty: one does.
[[nodiscard]] std::string why_no_kernel(const region::Region& r, const region::Plan& plan,
                                        const std::vector<const region::Provider*>& providers);

}  // namespace octavo::plan
