// Loops over tensors that are walked side by side.
#pragma once

#include <vector>

#include "ir/tensor.h"

namespace octavo::cpu {

/// Extents of loops, the outermost first, and each tensor's strides along them.
struct Joined {
  ir::Shape dims = {};
  std::vector<ir::Shape> strides = {};
};
/// Loops over `dims`, which the tensors have these strides along: by descending stride of the first tensor, without dimensions of one element, and with
/// neighbours joined that every tensor walks as one.
[[nodiscard]] Joined joined(const ir::Shape& dims, const std::vector<ir::Shape>& strides);

}  // namespace octavo::cpu
