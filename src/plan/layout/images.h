// Which values of rank 4 are images, stored with the channels, dimension 1, innermost.
#pragma once

#include <set>

#include "ir/graph.h"

namespace octavo::plan {

/// Values of rank 4 that some operator on images makes or reads, or a move that puts the channels last, through operators that keep the dimensions
/// where they are. Others, as the states of a scan over a sequence, have no channels in dimension 1.
[[nodiscard]] std::set<ir::ValueId> find_images(const ir::Graph& g);

}  // namespace octavo::plan
