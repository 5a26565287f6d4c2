// The region key: a one-line spelling of what a region's time depends on, and of nothing else. It names the region in the timing
// cache, in the verbose log, in `explain`, and for `octavo bench --region-key`.
//
//   conv u8[1,64,56,56]nhwc w s8[256,64,1,1] : acc_i i2f load_f load_f fma div ... #5f1c, f32[1,256,1,1]c f32[...]c >
//   u8[1,256,56,56]nhwc
//
// Anchor (with "float" when it does not compute on codes, and its attributes that are not defaults), its operands, the operations
// of the epilogue (# and a hash of how they hang together), further operands, stores. Layouts: nothing for dense row-major, "nhwc"
// for dense channels last, "c" for one element a channel, strides in parentheses otherwise. Further stages follow " ; " (" || "
// when side by side). Weights, scales, tables, names and addresses do not enter.
#pragma once

#include <string>

#include "region/region.h"

namespace octavo::region {

/// Equal for regions that every tactic runs in the same way. Deterministic; no newline, no '|' surrounded by single spaces.
[[nodiscard]] std::string key(const Region& region, const Plan& plan);

}  // namespace octavo::region
