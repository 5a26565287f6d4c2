#include "onnx/import/window.h"

#include <algorithm>

namespace octavo::onnx {

Result<Window> read_window(NodeContext& n, const Shape& extents, Ints kernel, bool pool) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20;  // keeps every product below 2^63
  const std::size_t spatial = extents.size();
  Window w;
  w.kernel = n.attr_ints("kernel_shape", kernel);
  if (!kernel.empty() && w.kernel != kernel) {
    return n.bad("kernel_shape {} disagrees with the weights {}", ir::to_string(w.kernel), ir::to_string(kernel));
  }
  w.strides = n.attr_ints("strides", Ints(spatial, 1));
  w.dilations = n.attr_ints("dilations", Ints(spatial, 1));
  w.pads = n.attr_ints("pads", Ints(2 * spatial, 0));
  w.ceil_pads.assign(spatial, 0);
  // Some exporters write empty lists for "default".
  if (w.strides.empty()) w.strides.assign(spatial, 1);
  if (w.dilations.empty()) w.dilations.assign(spatial, 1);
  if (w.pads.empty()) w.pads.assign(2 * spatial, 0);
  const auto check = [&](const Ints& list, std::size_t size, std::int64_t least, const char* what) -> Status {
    if (list.size() != size)
      return n.bad("{} has {} entries, needs {} for data with {} spatial dimensions", what, list.size(), size, spatial);
    for (const std::int64_t v : list) {
      if (v < least || v > kMost) return n.bad("{} {} has an entry outside {}..2^20", what, ir::to_string(list), least);
    }
    return {};
  };
  OCTAVO_CHECK(check(w.kernel, spatial, 1, "kernel_shape"));
  OCTAVO_CHECK(check(w.strides, spatial, 1, "strides"));
  OCTAVO_CHECK(check(w.dilations, spatial, 1, "dilations"));

  const std::string mode = n.attr_text("auto_pad", "NOTSET");
  const bool ceil = pool && n.attr_int("ceil_mode", 0) != 0;
  if (mode == "NOTSET" || mode.empty()) {
    OCTAVO_CHECK(check(w.pads, 2 * spatial, 0, "pads"));
  } else if (mode == "VALID") {
    w.pads.assign(2 * spatial, 0);
  } else if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
    w.pads.assign(2 * spatial, 0);
    for (std::size_t k = 0; k < spatial; ++k) {
      const std::int64_t reach = (w.kernel[k] - 1) * w.dilations[k] + 1;
      const std::int64_t out = (extents[k] + w.strides[k] - 1) / w.strides[k];
      const std::int64_t total = std::max<std::int64_t>(0, (out - 1) * w.strides[k] + reach - extents[k]);
      w.pads[k] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
      w.pads[k + spatial] = total - w.pads[k];
    }
  } else {
    return n.bad("auto_pad is \"{}\", not NOTSET, SAME_UPPER, SAME_LOWER or VALID", mode);
  }
  if (!ceil) return w;
  for (std::size_t k = 0; k < spatial; ++k) {
    const std::int64_t reach = (w.kernel[k] - 1) * w.dilations[k] + 1;
    const std::int64_t slack = extents[k] + w.pads[k] + w.pads[k + spatial] - reach;
    if (slack < 0) continue;  // the type rule reports it
    std::int64_t out = (slack + w.strides[k] - 1) / w.strides[k] + 1;
    if ((out - 1) * w.strides[k] >= extents[k] + w.pads[k]) --out;  // a window must not start in the end padding
    const std::int64_t end = (out - 1) * w.strides[k] + reach - extents[k] - w.pads[k];
    if (end >= w.pads[k + spatial]) {
      w.ceil_pads[k] = end - w.pads[k + spatial];
    } else {
      w.pads[k + spatial] = std::max<std::int64_t>(0, end);  // the clipped window was the only one that reached so far
    }
  }
  return w;
}

}  // namespace octavo::onnx
