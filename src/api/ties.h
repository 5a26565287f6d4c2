// Codes that float sums are rounded to. The order of such a sum is free, so a value next to a rounding tie may be rounded to either side.
#pragma once

#include <map>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "ir/grid.h"

namespace octavo::api {

/// Another order of the sum changes a value by at most this part of the tensor's largest magnitude. This is half a thousandth of the range
/// of 8-bit codes, and half a step of 16-bit codes.
inline constexpr double kSumTolerance = 1.0 / (1 << 17);

/// Is everything between `known` and `wanted` exact: products of codes that are summed in integers, roundings to codes, and what moves, selects or clamps values? Then no rewrite may
/// change a bit.
[[nodiscard]] bool exact_between(const ir::Graph& graph, const ir::Grids& grids, const std::map<ir::ValueId, ir::Tensor>& known,
                                 ir::ValueId wanted);

/// The values that an element may have: from `least` to `most`, both ends included.
struct Between {
  ir::Tensor least, most;
};

/// Which roundings count: those of values that depend on a float sum, or all, where float operations were rewritten.
enum class Loose { sums, all };

/// The values that `wanted` may have if every float value that is rounded to codes on the way from `known` (and that `loose` selects) differs by up to `tolerance` of its
/// tensor's largest magnitude (and at least by a thousandth of a step). `decided` is false if this gives no bound, because rounded values are summed again, or scales
/// are computed; then any neighbouring code may be right. Cost: some evaluations by the reference between the values. Errors: those of the reference.
struct AtTies {
  bool decided = false;
  Between between;
};
[[nodiscard]] Result<AtTies> at_ties(const ir::Graph& graph, const ir::Grids& grids, const std::map<ir::ValueId, ir::Tensor>& known,
                                     ir::ValueId wanted, double tolerance, Loose loose = Loose::sums);

}  // namespace octavo::api
