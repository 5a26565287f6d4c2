// Where the elements of a moving stage come from: its attributes, read once for all devices.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "region/region.h"

namespace octavo::region {

/// Of index `i` of a padded dimension, less the padding before it, the index of the dimension; -1: the pad value.
[[nodiscard]] std::int64_t pad_source(ir::PadMode mode, std::int64_t i, std::int64_t extent);

/// The source of an element is the sum of one entry a dimension of the stage's space, the pad value where an entry is kFill, and where
/// the stage is a gather the row that its indices name.
struct MoveSource {
  static constexpr std::int64_t kFill = -1;
  std::vector<std::vector<std::int64_t>> of;  ///< elements of inputs[0], for each index of each dimension of the space
  std::size_t gathered = 0;  ///< dimensions of the space that the indices have, from `axis` on: their lists are empty
  std::size_t axis = 0;
};

/// Of pad, tile, slice, resize_nearest, transpose, depth_to_space, space_to_depth, gather, and reshape between equal shapes. Errors: the
/// shapes and attributes that do not fit together.
[[nodiscard]] Result<MoveSource> move_source(const Stage& stage);

}  // namespace octavo::region
