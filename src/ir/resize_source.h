// Where a resized dimension is read: the definition that the reference and all kernels share.
#pragma once

#include "ir/facts.h"

namespace octavo::ir {

/// The source coordinate of result `o` of a dimension that goes from `in` to `out` elements by `scale`; not clamped. Formulas: ONNX, Resize.
[[nodiscard]] inline double resize_source(Coordinates mode, double o, double in, double out, double scale) {
  switch (mode) {
    case Coordinates::half_pixel: break;
    case Coordinates::pytorch_half_pixel: return out > 1 ? (o + 0.5) / scale - 0.5 : 0.0;
    case Coordinates::align_corners: return out > 1 ? o * (in - 1) / (out - 1) : 0.0;
    case Coordinates::asymmetric: return o / scale;
    case Coordinates::tf_half_pixel_for_nn: return (o + 0.5) / scale;
    case Coordinates::half_pixel_symmetric: {  // as half_pixel, centred when the output extent was rounded
      const double centre = in / 2, offset = centre * (1 - out / (scale * in));
      return offset + (o + 0.5) / scale - 0.5;
    }
  }
  return (o + 0.5) / scale - 0.5;
}

}  // namespace octavo::ir
