// Candidate split-views:  slice_a(q1(v)), slice_b(q2(v)) ==> slice_a(q(v)), slice_b(q(v)), q per channel: q1's in a, q2's in b
//   Why    halves of a Split with different scales are stored once instead of once for each scale, and side by side, so that a
//          concatenation of them needs no copies.
//   Exact  bit for bit; each channel is quantized with the same scale as before. A further view behind q2, equal to q1, is kept:
//          q1(q(v)) is q1(v) in a, since q1(q1(x)) = q1(x) in fp32.
//   Needs  every reader of v is a view of one type, and every reader of such a view a slice of channels with step 1; ranges of
//          different views do not overlap.
//   Order  on the normalized graph, where views stand above slices. Default: stored once a scale.
//   Says   collect, slices
#pragma once

#include <optional>

#include "base/reason.h"
#include "ir/graph.h"

namespace octavo::plan {

/// Nothing if the views of `value` can be made one; else the condition that fails, with the values.
[[nodiscard]] std::optional<Reason> why_no_split_views(const ir::Graph& g, ir::ValueId value);
/// Rewrites it. Call only when why_no_split_views gives nothing.
void make_split_views(ir::Graph& g, ir::ValueId value);

}  // namespace octavo::plan
