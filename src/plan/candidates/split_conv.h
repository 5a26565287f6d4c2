// Candidate split-conv:  slice_a(f(conv(x, W))), slice_b(f(conv(x, W))) ==> f(conv(x, W_a)), f(conv(x, W_b)), f pointwise
//   Why    if readers need the parts of a Split at different places or scales, each part is stored once, where its reader needs it:
//          no store of unused channels, no copy, and the channels that a reader needs are adjacent.
//   Exact  bit for bit: every channel is the same integer sum behind the same operations.
//   Needs  an integer conv without groups, and behind it pointwise operations of one region alone up to 2 to 4 different slices of
//          channels, step 1, that do not overlap.
//   Order  on the normalized graph, where views stand above slices. Default: one convolution.
//   Says   collect, before_slices, follow
#pragma once

#include <optional>

#include "base/reason.h"
#include "ir/graph.h"
#include "ir/grid.h"

namespace octavo::plan {

/// Nothing if `conv` can be split by its output channels; else the condition that fails, with the values.
[[nodiscard]] std::optional<Reason> why_no_split_conv(const ir::Graph& g, const ir::Grids& grids, ir::NodeId conv);
/// Rewrites it. Call only when why_no_split_conv gives nothing. Cost: copies the weights.
void make_split_conv(ir::Graph& g, const ir::Grids& grids, ir::NodeId conv);

}  // namespace octavo::plan
