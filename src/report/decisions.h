// What the planner weighed, and what moves data without computing: for `explain`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "region/region.h"

namespace octavo::report {

/// The planner's choices about this region: each candidate with its price, what was chosen and why. Empty when there were none.
[[nodiscard]] std::vector<std::string> decisions_about(const region::Region& region, const region::Plan& plan);

/// What `extras` lists a region as: "copy", "requantize" (a pass of its own that only changes type or scale), "float" (in a plan that
/// has int8 regions too); empty: none of these.
[[nodiscard]] std::string_view kind_of(const region::Region& region, const region::Plan& plan);

/// Copies, passes of their own that only change type or scale, and float regions of a model with int8 regions: which ONNX nodes
/// cause each, why, what it costs, and how to change it.
[[nodiscard]] std::string extras(const region::Plan& plan);

/// A tensor: who makes and who reads it, in which types and scales, and where it lies. Fails with `usage` naming tensors like it.
[[nodiscard]] Result<std::string> tensor(const region::Plan& plan, const std::string& name);

/// "slice of the 96 channels that \"concat_out\" holds, NHWC"; in words where a reference lies.
[[nodiscard]] std::string place_of(const region::TensorRef& ref, const region::Plan& plan);

/// How a user changes what this region is; empty for ordinary int8 regions.
[[nodiscard]] std::string way_out(const region::Region& region);

}  // namespace octavo::report
