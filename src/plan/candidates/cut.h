// Constants of a part of the channels.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "ir/graph.h"

namespace octavo::plan {

using Range = std::pair<std::int64_t, std::int64_t>;  ///< from the first on, up to the second

/// A per-axis quantizer's entries for these channels, if they are along `axis`.
[[nodiscard]] std::optional<ir::Quantizer> cut(std::optional<ir::Quantizer> q, std::size_t axis, Range range);
/// A constant's elements for these channels; `axis`: where channels lie. kNone stays kNone.
ir::ValueId cut_constant(ir::Graph& g, ir::ValueId v, std::size_t axis, Range range);

}  // namespace octavo::plan
