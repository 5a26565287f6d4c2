// Candidate split-conv:  slice_a(f(conv(x, W))), slice_b(f(conv(x, W))) ==> f(conv(x, W_a)), f(conv(x, W_b)), f pointwise
//   Why    parts of a Split that are wanted in places or at scales of their own are each stored once, where they are wanted: no
//          store of channels that nobody reads, no copy, and their readers find the channels side by side.
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
