// What values a tensor can take, as far as quantizers, relu and clip decide it.
#pragma once

#include "ir/graph.h"

namespace octavo::quant {

/// Every element x has lo <= x <= hi. When lo >= 0, no element is -0 or NaN.
struct Range {
  float lo, hi;
};
/// Follows views, codes, relu, clip and moving operators down to values of which nothing is known (-inf, inf). Views keep order, so
/// a range survives them: what is not negative below a view is not negative above it.
[[nodiscard]] Range range_of(const ir::Graph& g, ir::ValueId v);

}  // namespace octavo::quant
