// Windows of convolutions and pooling: which input elements each output element reads, one dimension at a time.
#pragma once

#include <string>
#include <vector>

#include "region/region.h"

namespace octavo::cpu {

/// One kernel position of a phase: output j of the phase reads input in_step * j + shift with kernel index k.
struct Tap {
  std::int64_t k = 0, shift = 0;
};
/// Outputs first, first + step, ... (count of them) have the same taps. A convolution has one phase a dimension; a transposed
/// convolution has one for each residue of the stride (gather form: no scattering, no overlapping writes).
struct AxisPhase {
  std::int64_t first = 0, step = 1, count = 0, in_step = 1;
  std::vector<Tap> taps;  ///< by ascending shift
};
/// One spatial dimension.
struct WindowAxis {
  std::int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, pad = 0;
  bool transposed = false;
  [[nodiscard]] std::vector<AxisPhase> phases() const;
};

/// Dimensions of an image-like stage, as positions in Stage::space; -1: absent (extent 1). Up to three spatial dimensions.
struct Image {
  int n = -1, c = -1, d = -1, h = -1, w = -1;
  WindowAxis depth, height, width;
  /// Strides of input 0 in bytes along n, c, d, h, w; 0 where absent.
  std::int64_t xn = 0, xc = 0, xd = 0, xh = 0, xw = 0;
  std::int64_t batch = 1;

  /// Reads conv, conv_transpose, max_pool or avg_pool. `kernel`: extents of the window. Errors: ranks other than 3 to 5, attributes
  /// of a wrong length. When no window reaches a second pixel and there is one output pixel an image (a matrix product), images
  /// become pixels.
  static Result<Image> of(const region::Stage& stage, const std::vector<std::int64_t>& kernel);
};

}  // namespace octavo::cpu
