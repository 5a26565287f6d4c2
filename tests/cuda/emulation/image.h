// Images as kernels under emulation get them.
#pragma once

#include <cstddef>

#include "cuda/emulation/hooks.h"
#include "cuda/text/kernel_text.h"

namespace octavo::testing {

/// Of what begins at `base`.
inline OctavoImage emulated_image(const cuda::ImageMap& m, const std::byte* base) {
  OctavoImage out{};
  out.base = reinterpret_cast<const unsigned char*>(base), out.channels = m.channels, out.pixels = m.pixels, out.bytes = m.bytes;
  for (std::size_t d = 0; d < 3; ++d) out.dims[d] = m.dims[d], out.strides[d] = m.strides[d];
  for (std::size_t d = 0; d < 2; ++d) out.lower[d] = m.lower[d], out.upper[d] = m.upper[d], out.steps[d] = m.steps[d];
  return out;
}

}  // namespace octavo::testing
