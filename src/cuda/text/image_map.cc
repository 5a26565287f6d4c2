#include "cuda/text/image_map.h"

#include <fmt/format.h>

#include <string_view>

namespace octavo::cuda {

Status check_image(const ImageMap& m, std::int64_t bytes) {
  constexpr std::int64_t kMostDim = std::int64_t{1} << 31, kMostStride = std::int64_t{1} << 39;
  constexpr int kMostPixels = 256, kMostSteps = 8;
  const auto bad = [](std::string_view what, std::int64_t value) {
    return fail(ErrorKind::bad_engine, fmt::format("a kernel's image: {} {}", what, value));
  };
  if (m.channels < 1 || m.channels > kMostDim) return bad("bytes of a pixel", m.channels);
  std::int64_t last = m.channels;
  for (std::size_t d = 0; d < 3; ++d) {
    if (m.dims[d] < 1 || m.dims[d] > kMostDim) return bad("size", m.dims[d]);
    if (m.strides[d] < 16 || m.strides[d] > kMostStride || m.strides[d] % 16 != 0) return bad("stride", m.strides[d]);
    if (m.dims[d] - 1 > (bytes - last) / m.strides[d])
      return fail(ErrorKind::bad_engine, fmt::format("a kernel's image ends behind the {} bytes of its buffer", bytes));
    last += (m.dims[d] - 1) * m.strides[d];
  }
  if (last > bytes) return fail(ErrorKind::bad_engine, fmt::format("a kernel's image of {} bytes in a buffer of {}", last, bytes));
  for (std::size_t d = 0; d < 2; ++d) {
    for (const int corner : {m.lower[d], m.upper[d]}) {
      if (corner < -128 || corner > 127) return bad("corner", corner);
    }
    if (m.steps[d] < 1 || m.steps[d] > kMostSteps) return bad("step", m.steps[d]);
  }
  if (m.pixels < 1 || m.pixels > kMostPixels) return bad("pixels of a copy", m.pixels);
  if (m.bytes != 32 && m.bytes != 64 && m.bytes != 128) return bad("bytes of a copied pixel", m.bytes);
  return {};
}

}  // namespace octavo::cuda
