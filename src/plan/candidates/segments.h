// Candidate segments:  conv(concat(a, b), W) ==> add(conv(a, W_a), conv(b, W_b))
//   Why    parts on different grids make the concatenation a float tensor and the convolution a float convolution; each part alone
//          is int8.
//   Exact  within the freedom of a float sum, not bit for bit: each part's sum is exact in int32, the parts are added in fp32 in
//          channel order, and a float convolution's order of summation is free (docs/semantics.md).
//   Needs  a conv without groups over a concatenation of channels; coded 8-bit weights; every part on a per-tensor 8-bit grid.
//   Order  on the normalized graph, where views stand above the concatenation. Default: a float convolution.
//   Says   why_no_segments
#pragma once

#include <optional>

#include "base/reason.h"
#include "ir/graph.h"
#include "ir/grid.h"

namespace octavo::plan {

/// Nothing if `node` can be computed in segments; else the condition that fails, with the values.
[[nodiscard]] std::optional<Reason> why_no_segments(const ir::Graph& g, const ir::Grids& grids, ir::NodeId node);
/// Rewrites it. Call only when why_no_segments gives nothing.
void make_segments(ir::Graph& g, const ir::Grids& grids, ir::NodeId node);

}  // namespace octavo::plan
