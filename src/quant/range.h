// What values a tensor can take, as far as quantizers, relu and clip decide it.
#pragma once

#include "ir/graph.h"

namespace octavo::quant {

/// Every element x has lo <= x <= hi, and is not NaN unless the range is that of a value of which nothing is known.
struct Range {
  float lo, hi;
  bool minus_zero;  ///< an element may be -0
  /// relu gives back every element, bit for bit.
  [[nodiscard]] bool never_negative() const { return lo >= 0 && !(minus_zero && lo == 0); }
};
/// Follows views, codes, relu, clip and data-movement operators down to values of which nothing is known (-inf, inf). Views keep order, so
/// a range survives them: what is not negative below a view is not negative above it.
[[nodiscard]] Range range_of(const ir::Graph& g, ir::ValueId v);

}  // namespace octavo::quant
