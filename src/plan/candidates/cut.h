// Anchors that are computed in parts of their channels.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "base/reason.h"
#include "ir/graph.h"
#include "ir/grid.h"

namespace octavo::plan {

using Range = std::pair<std::int64_t, std::int64_t>;  ///< from the first on, up to the second

/// A per-axis quantizer's entries for these channels, if they are along `axis`.
[[nodiscard]] std::optional<ir::Quantizer> cut(std::optional<ir::Quantizer> q, std::size_t axis, Range range);
/// A constant's elements for these channels; `axis`: where channels lie. kNone stays kNone.
ir::ValueId cut_constant(ir::Graph& g, ir::ValueId v, std::size_t axis, Range range);
/// The node for a part of what `whole` has, a value of this type; the part keeps the name, and the range of the values.
ir::ValueId add_part(ir::Graph& g, ir::Node n, ir::ValueId whole, ir::TensorType type);

/// Nothing where the anchor is computed in integers, by constants alone.
[[nodiscard]] std::optional<Reason> why_not_in_parts(const ir::Graph& g, const ir::Grids& grids, ir::NodeId anchor);
/// Nothing where these parts are few, and none overlaps another.
[[nodiscard]] std::optional<Reason> why_not_apart(const std::set<Range>& parts);

}  // namespace octavo::plan
