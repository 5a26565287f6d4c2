#include "cuda/device/encoded_image.h"

namespace octavo::cuda {
namespace {

/// CU_TENSOR_MAP_*: elements of a byte; rows of shared memory of 32, 64 or 128 bytes whose chunks are exchanged; lines of L2 of 128 bytes.
constexpr int kBytes = 0, kNoInterleave = 0, kLinesOf128 = 2, kZeros = 0;
constexpr int kExchanged32 = 1, kExchanged64 = 2, kExchanged128 = 3;

}  // namespace

Result<EncodedImage> encode(const ImageMap& m, CuAddress address, const DriverApi& api) {
  EncodedImage out;
  std::array<std::uint64_t, 4> dims{static_cast<std::uint64_t>(m.channels)};
  std::array<std::uint64_t, 3> strides{};
  for (std::size_t d = 0; d < 3; ++d) {
    dims[d + 1] = static_cast<std::uint64_t>(m.dims[d]);
    strides[d] = static_cast<std::uint64_t>(m.strides[d]);
  }
  const std::array<unsigned, 4> steps{1, static_cast<unsigned>(m.steps[0]), static_cast<unsigned>(m.steps[1]), 1};
  const int exchanged = m.bytes == 128 ? kExchanged128 : m.bytes == 64 ? kExchanged64 : kExchanged32;
  void* const at = reinterpret_cast<void*>(address);  // NOLINT: an address of the GPU
  OCTAVO_CHECK(
      api.check(api.encode_im2col(out.bytes.data(), kBytes, static_cast<unsigned>(dims.size()), at, dims.data(), strides.data(),
                                  m.lower.data(), m.upper.data(), static_cast<unsigned>(m.bytes), static_cast<unsigned>(m.pixels),
                                  steps.data(), kNoInterleave, exchanged, kLinesOf128, kZeros),
                "describing an image to the GPU"));
  return out;
}

}  // namespace octavo::cuda
