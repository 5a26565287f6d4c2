// The driver's form of an image (ImageMap), which a kernel gets as a parameter.
#pragma once

#include <array>
#include <cstddef>

#include "base/result.h"
#include "cuda/device/driver_api.h"
#include "cuda/text/image_map.h"

namespace octavo::cuda {

/// The driver's form (CUtensorMap): the kernel's copy of it is read by the copying unit alone.
struct alignas(64) EncodedImage {
  std::array<std::byte, 128> bytes{};
};

/// Of what begins at `address`, a multiple of 16. Error: the driver's, `unsupported`.
[[nodiscard]] Result<EncodedImage> encode(const ImageMap& map, CuAddress address, const DriverApi& api);

}  // namespace octavo::cuda
