// Regions side by side: independent stages as one region.
//
// Candidate horizontal:  conv(x, W1); conv(x, W2) ==> one region, side by side
//   Why    the input is read once while it is in cache, and small convolutions fill all threads together; a GPU computes them as one product.
//   Exact  bit for bit: nothing is computed otherwise.
//   Needs  2 to 8 convolutions or linear layers of one tensor, in integers, float16 or bfloat16; nothing between them reads a result of theirs.
//   Order  on the default plan. Default: apart; convolutions in float16 and bfloat16 and linear layers of codes side by side where that is usual on the device
//          (PlanOptions::usual) and a kernel takes them together.
//   Says   join_side_by_side
//
// Candidate one-pass:  parts of one stored tensor without a heavy operator ==> one region
//   Why    one pass over the parts of a concatenation instead of one pass for each part.
//   Exact  bit for bit: nothing is computed otherwise.
//   Needs  2 to 8 pointwise regions that store into one buffer; nothing between them reads a result of theirs.
//   Order  on the default plan. Default: apart.
//   Says   join_side_by_side
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::plan {

/// Single-stage regions that may run side by side: they share an input or store into one buffer, and nothing between them needs
/// their results. Each set has 2 to 8 region indices, ascending.
struct Neighbours {
  std::vector<std::size_t> regions;
  std::string kind;  ///< "horizontal" (convs that read one tensor) or "one-pass" (parts of one buffer, no anchor)
};
[[nodiscard]] std::vector<Neighbours> find_neighbours(const region::Plan& plan);
/// The results of those that are convolutions in float16 or bfloat16, or linear layers of codes.
[[nodiscard]] std::vector<std::set<ir::ValueId>> layers_side_by_side(const region::Plan& plan);
/// Such ones are side by side where a kernel takes them: a kind for PlanOptions::usual.
inline constexpr std::string_view kHorizontalLayers = "horizontal-layers";

/// One independent region, at the place of the last, of the regions whose first results are `values`. Nothing, or why not.
Reasons join_side_by_side(region::Plan& plan, const std::set<ir::ValueId>& values,
                          const std::vector<const region::Provider*>& providers);

}  // namespace octavo::plan
