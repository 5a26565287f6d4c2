// Sizes and strides of what a TensorRef refers to.
#pragma once

#include <cstddef>
#include <cstdint>

#include "region/region.h"

namespace octavo::region {

[[nodiscard]] inline std::int64_t element_bytes(const TensorRef& t) {
  return static_cast<std::int64_t>(ir::size_of(t.dtype));
}
/// Of all elements, without the gaps between them.
[[nodiscard]] inline std::int64_t tensor_bytes(const TensorRef& t) {
  return ir::count(t.dims) * element_bytes(t);
}
/// Elements from one index of dimension k of a space to the next; strides of dimensions with one element say nothing and count as 0.
[[nodiscard]] inline std::int64_t broadcast_stride(const TensorRef& t, const ir::Shape& space, std::size_t k) {
  return space[k] == 1 ? 0 : t.strides[k];
}

/// The same, by the tensor's own dimensions, where it may have fewer than the space's `rank`: they are the last ones, as ONNX broadcasts.
[[nodiscard]] inline std::int64_t aligned_stride(const TensorRef& t, std::size_t rank, std::size_t k) {
  const auto at = static_cast<std::ptrdiff_t>(k) - static_cast<std::ptrdiff_t>(rank - t.dims.size());
  return at < 0 ? 0 : broadcast_stride(t, t.dims, static_cast<std::size_t>(at));
}

}  // namespace octavo::region
