// Every ONNX node of the normalized graph belongs to at least one region, also those that cost nothing at run time.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "region/region.h"

namespace octavo::plan {

/// Adds to Region::onnx_nodes what no group computes: moving nodes that became strides (concat, slice, reshape, ...) join the
/// regions that store what they move, or else those that read it; the Q/DQ nodes of constants join the regions that read the
/// constant.
void account_for_moves(const ir::Graph& graph, std::vector<region::Region>& regions);

}  // namespace octavo::plan
