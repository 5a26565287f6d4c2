// A product of two matrices as a region: what its tests share, whatever the types.
#pragma once

#include <vector>

#include "cpu/scalar_region.h"

namespace octavo::testing::matmul {

using ir::DType;
using program::Op;
using region::BufferKind;
using Shape = ir::Shape;

struct Sizes {
  Shape left, right;
};
/// Orders of dimensions, the innermost one last; empty: as the dimensions are.
struct Layout {
  std::vector<int> left, right;
};

/// The dimensions of the result: those of a batch of one are repeated.
inline Shape product_space(const Sizes& n) {
  Shape space = n.left.size() > n.right.size() ? n.left : n.right;
  for (std::size_t d = 0; d + 2 < space.size(); ++d) {
    for (const Shape* x : {&n.left, &n.right}) {
      const std::size_t less = space.size() - x->size();
      if (d >= less && (*x)[d - less] != 1) space[d] = (*x)[d - less];
    }
  }
  space[space.size() - 2] = n.left[n.left.size() - 2];
  space.back() = n.right.back();
  return space;
}

}  // namespace octavo::testing::matmul
