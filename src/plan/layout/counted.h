// Sizes that data decide, behind their source: how many of the first elements of each value matter to any result of the model. Import gives every value of such a size
// room for the most (onnx/import/sizes.h). What reads it ignores the elements behind the last one, and so do all values before it that only such readers have.
// Found from the results backwards (plan/layout/needs.h).
#pragma once

#include <set>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::plan {

/// Do the kernels of these providers run on threads of the host, which can leave out steps and branches (plan/layout/gates.h)?
[[nodiscard]] bool counts(const std::vector<const region::Provider*>& providers);

/// The nodes that put something behind the elements that count, for readers of all of them, where a heavy operator in front of them computes fewer if they are regions
/// of their own; and selections of what an operator computes in some runs only. Empty where nothing is counted.
[[nodiscard]] std::set<ir::NodeId> fills_behind_counts(const ir::Graph& graph);

/// Notes in each region of a finished plan which dimension is counted, or that all of it is left out in some runs (plan/layout/gates.h), and by what
/// (region::Region::count). `graph`: the plan's. Regions are left as they are where
/// more is read, where the elements do not lie in front of all others, or where the count is known only later.
void mark_counted(region::Plan& plan, const ir::Graph& graph);

/// Kernels of other devices that read a count (mark_counted) are made anew, with the constants that were packed for them, and counts stay in memory as long as they are
/// read. Regions whose kernels compute everything in any case are marked no more. Nothing changes where there is none. Errors: the provider's.
[[nodiscard]] Status count_on_devices(region::Plan& plan, const std::vector<const region::Provider*>& providers);

}  // namespace octavo::plan
