// Images as the GPU's copying unit reads them.
#pragma once

#include <array>
#include <cstdint>

#include "base/result.h"

namespace octavo::cuda {

/// Images in rows of pixels as a GPU's copies in the form "im2col" read them (sm_90 and later; PTX ISA, tensors in im2col mode): a copy takes `pixels`
/// positions of a window, one after the other over rows and images, and `bytes` bytes of each, zeros outside of the image. Positions of one row or
/// column begin at `lower`, and end before the image's end plus `upper`. Sizes, strides and corners in the order columns, rows.
struct ImageMap {
  std::int64_t channels = 0;              ///< bytes of a pixel
  std::array<std::int64_t, 3> dims{};     ///< columns, rows, images
  std::array<std::int64_t, 3> strides{};  ///< bytes, multiples of 16
  std::array<int, 2> lower{}, upper{};    ///< -128 to 127
  std::array<int, 2> steps{1, 1};         ///< from one position to the next, 1 to 8
  int pixels = 0, bytes = 0;  ///< of a copy: at most 256, and 32, 64 or 128: the rows of shared memory, whose chunks are exchanged
  bool operator==(const ImageMap&) const = default;
};

/// Is it one that the driver takes, and does it lie within `bytes` bytes from where it begins? Error: `bad_engine`, with both values.
[[nodiscard]] Status check_image(const ImageMap& map, std::int64_t bytes);

}  // namespace octavo::cuda
