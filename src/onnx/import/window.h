// Kernel, strides, dilations, pads of convolutions and pools: auto_pad and ceil_mode resolved to explicit pads.
#pragma once

#include "onnx/import/node_context.h"

namespace octavo::onnx {

/// One entry a spatial dimension; pads are all begins, then all ends.
struct Window {
  Ints kernel, strides, dilations, pads;
  Ints ceil_pads;  ///< what ceil_mode adds to the end pads; windows may reach into it, but it does not count as padding in averages
  [[nodiscard]] std::size_t spatial() const { return kernel.size(); }
};

/// Reads kernel_shape (or takes `kernel`), strides, dilations, pads, auto_pad and, for pools, ceil_mode. `extents` are the spatial
/// dimensions of the data. Errors: bad_model (lengths, ranges).
[[nodiscard]] Result<Window> read_window(NodeContext& n, const Shape& extents, Ints kernel, bool pool);

}  // namespace octavo::onnx
