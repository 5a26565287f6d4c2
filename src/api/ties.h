// Codes behind float sums: the order of such a sum is free, so a value next to a rounding tie may go to either side of it.
#pragma once

#include <map>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "ir/grid.h"

namespace octavo::api {

/// A value that another order of the sum gives differs by at most this part of the tensor's largest magnitude: half a thousandth of the values
/// that 8 bits tell apart, half a step of 16 bits.
inline constexpr double kSumTolerance = 1.0 / (1 << 17);

/// What an element may be: from `least` to `most`, both ends included.
struct Between {
  ir::Tensor least, most;
};

/// Which roundings count: those of values that depend on a float sum, or all, where float operations were rewritten.
enum class Loose { sums, all };

/// What `wanted` may be when every float value that is rounded to codes on the way from `known`, as far as it counts, is up to `tolerance` of its
/// tensor's largest magnitude (and at least a thousandth of a step) more or less. `decided` is false where that does not bound it: rounded values are summed once more, or scales
/// are computed; then any neighbouring code may be right. Cost: the reference between the values, a few times. Errors: those of the reference.
struct AtTies {
  bool decided = false;
  Between between;
};
[[nodiscard]] Result<AtTies> at_ties(const ir::Graph& graph, const ir::Grids& grids, const std::map<ir::ValueId, ir::Tensor>& known,
                                     ir::ValueId wanted, double tolerance, Loose loose = Loose::sums);

}  // namespace octavo::api
