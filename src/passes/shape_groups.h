// Which dimensions of two shapes with as many elements belong together: what rules ask that move reshapes.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/tensor.h"

namespace octavo::passes {

/// Neighbouring dimensions of two shapes that have as many elements.
struct Group {
  std::size_t from = 0, to = 0;    ///< of the one
  std::size_t first = 0, end = 0;  ///< of the other
};

/// The finest groups of two shapes with as many elements, neither empty. A dimension of one element may be a group of its own.
[[nodiscard]] std::vector<Group> groups_of(const ir::Shape& one, const ir::Shape& other);

}  // namespace octavo::passes
