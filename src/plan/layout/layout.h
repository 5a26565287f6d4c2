// Strided-layout algebra: how data-movement operators act on strides, so that they cost nothing.
#pragma once

#include <optional>
#include <vector>

#include "ir/tensor.h"
#include "region/region.h"

namespace octavo::plan {

using Strides = std::vector<std::int64_t>;

/// Dense strides with the dimensions stored in `order` (slowest first).
[[nodiscard]] Strides strides_in_order(const ir::Shape& dims, const std::vector<int>& order);
/// N, spatial..., C for rank >= 3; row-major below.
[[nodiscard]] Strides channel_last(const ir::Shape& dims);
/// Dimension order (slowest first) that these strides imply; ties keep the logical order.
[[nodiscard]] std::vector<int> order_of(const ir::Shape& dims, const Strides& strides);
/// Strides that show the same memory under another shape with as many elements, or nothing when no strides can.
[[nodiscard]] std::optional<Strides> reshape_strides(const ir::Shape& from, const Strides& strides, const ir::Shape& to);

/// The ref after the data-movement operator (transpose: perm; slice: starts, steps, new dims; reshape; expand).
[[nodiscard]] region::TensorRef permuted(const region::TensorRef& r, const std::vector<std::int64_t>& perm);
[[nodiscard]] region::TensorRef unpermuted(const region::TensorRef& r, const std::vector<std::int64_t>& perm);
[[nodiscard]] region::TensorRef sliced(const region::TensorRef& r, const std::vector<std::int64_t>& starts,
                                       const std::vector<std::int64_t>& steps, const ir::Shape& dims);
[[nodiscard]] std::optional<region::TensorRef> reshaped(const region::TensorRef& r, const ir::Shape& dims);
/// Read under numpy broadcasting in the larger `space` (leading dimensions added, stride 0 where one element serves many).
[[nodiscard]] region::TensorRef broadcast(const region::TensorRef& r, const ir::Shape& space);

}  // namespace octavo::plan
