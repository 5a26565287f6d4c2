// Windows over the elements of an image, for kernels that number elements (plain.h).
#pragma once

#include <string>

#include "cuda/families/plain/plain.h"

namespace octavo::cuda {

/// The shape that pooling with the window gives. Error: `bad_engine`, where the window does not fit the image.
[[nodiscard]] Result<ir::Shape> pooled_shape(const Stage& stage);

/// `long long octavo_inside(long long i, int tap)`: the element of the image's plane that tap `tap` of result element i reads, -1: none, in the padding;
/// constants kTaps, kPlane (elements of a plane), kResults (results of a plane).
[[nodiscard]] std::string window_functions(const Stage& stage);

}  // namespace octavo::cuda
