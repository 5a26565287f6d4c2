// Regions of several stages: chains through cache, and regions side by side.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::plan {

/// Where a chain could be made longer: regions[second]'s anchor alone reads what regions[first] stores.
struct Link {
  std::size_t first = 0, second = 0;
  ir::ValueId value = ir::kNone;  ///< between them
  std::string kind;               ///< "conv-pool", "depthwise-pointwise", "pointwise-depthwise", "quantize-conv"
};
[[nodiscard]] std::vector<Link> find_links(const region::Plan& plan);

/// Joins regions through every value of `staged` that is a link and that some provider takes; what is not taken stays apart and
/// says why. Exact: stages are joined at the type and the grid that the graph demands between them.
std::string join_stages(region::Plan& plan, const std::set<ir::ValueId>& staged,
                        const std::vector<const region::Provider*>& providers);

/// Single-stage regions that may run side by side: they share an input or store into one buffer, and nothing between them needs
/// their results. Each set has 2 to 8 region indices, ascending.
struct Neighbours {
  std::vector<std::size_t> regions;
  std::string kind;  ///< "horizontal" (convs that read one tensor) or "one-pass" (parts of one buffer, no anchor)
};
[[nodiscard]] std::vector<Neighbours> find_neighbours(const region::Plan& plan);

/// One independent region, at the place of the last, of the regions whose first results are `values`. Empty, or why not.
std::string join_together(region::Plan& plan, const std::set<ir::ValueId>& values,
                          const std::vector<const region::Provider*>& providers);

}  // namespace octavo::plan
