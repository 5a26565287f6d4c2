// Lowering: groups and copies become regions, in execution order, with programs, operands and stores.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "ir/grid.h"
#include "plan/layout/place.h"
#include "plan/memo.h"
#include "plan/regions/group.h"
#include "region/region.h"

namespace octavo::plan {

/// Appends to `placement.buffers` (constants, converted inputs) and returns the regions. Tactics are not chosen yet.
[[nodiscard]] Result<std::vector<region::Region>> lower(const ir::Graph& g, const ir::Grids& grids, const Grouping& grouping,
                                                        Placement& placement, Memo& memo);

/// A stage that only copies, elements in their own types.
[[nodiscard]] region::Stage copy_stage(region::TensorRef from, const region::TensorRef& to);

}  // namespace octavo::plan
