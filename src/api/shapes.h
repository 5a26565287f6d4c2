// Ranges that shapes of inputs lie in: profiles of an open model, --minShapes and --maxShapes.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "ir/tensor.h"

namespace octavo::api {

using Shapes = std::map<std::string, ir::Shape>;

/// Of one input: every dimension of a shape must lie between min and max.
struct ShapeRange {
  ir::Shape min, opt, max;
  /// One rank, and 0 <= min <= opt <= max in every dimension.
  [[nodiscard]] bool sound() const;
  /// Of a shape of this rank: the first dimension that is not between its ends.
  [[nodiscard]] std::optional<std::size_t> outside(const ir::Shape& shape) const;
};
using ShapeRanges = std::map<std::string, ShapeRange>;

}  // namespace octavo::api
