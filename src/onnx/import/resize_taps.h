// Resize written out: one dimension at a time, each output element is a weighted sum of some input elements. For the variants that
// the IR's resizes do not have: antialias, tf_crop_and_resize, and align_corners with a scale that is not the quotient of the
// extents.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "onnx/import/node_context.h"

namespace octavo::onnx {

struct TapsRequest {
  std::string mode, coordinates, nearest;  ///< as ONNX spells them
  bool antialias = false, exclude_outside = false;
  double cubic = -0.75;
  float extrapolation = 0;
};
struct TapsDim {
  std::int64_t in = 1, out = 1;
  double scale = 1;
  double roi_start = 0, roi_end = 1;
};

/// x with dimension `axis` resized. Weights are computed in double and rounded once.
[[nodiscard]] Result<ValueId> resize_by_taps(NodeContext& n, ValueId x, std::int64_t axis, const TapsRequest& r, const TapsDim& d);

/// The source element of coordinate x, by ONNX's nearest_mode ("simple" is opset 10's).
[[nodiscard]] std::int64_t nearest_index(const std::string& mode, float x, bool shrinks);

}  // namespace octavo::onnx
