// Random regions of the operators of families/plain, a builder each: for tests under the emulation, and in larger shapes for the program on a GPU.
#pragma once

#include <string_view>
#include <vector>

#include "cpu/scalar_region.h"
#include "cuda/family.h"

namespace octavo::testing {

struct PlainCase {
  std::string_view name;  ///< of the family
  const cuda::Family& (*family)();
  /// Makes the stage with its data: types, shapes, layouts, and with or without a program, all of the scene's seed. Extents are about `size`.
  void (*build)(Scene& scene, int size);
  float tolerance = 0;  ///< of floats
};

/// One for each family of families/plain.
[[nodiscard]] const std::vector<PlainCase>& plain_cases();

}  // namespace octavo::testing
