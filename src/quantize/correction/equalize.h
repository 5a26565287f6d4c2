// Cross-layer equalization: channels of a tensor are multiplied so that each uses most of the codes of the one scale they share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "onnx/import/import.h"
#include "quantize/data/data.h"
#include "quantize/data/network.h"

namespace octavo::quantize {

struct EqualizeOptions {
  /// A channel's factor is (largest range of the tensor / its own range)^exponent. 1 makes all ranges equal; less spares the
  /// weights of the layers that read the tensor, whose columns become as unlike as the channels were. Depthwise readers have a
  /// scale for each channel and lose nothing: exponent 1.
  double exponent = 0.5;
  double chain_exponent = 1.0;  ///< of tensors that residual blocks add to: each of them is rounded, and the errors add up
  bool offsets = true;          ///< move the channels of sums so that their ranges have one center (codes have a zero point)
  double most = 32;             ///< the largest factor
  /// Where one half of the samples reaches r times as far in a channel as the other half, the channel counts as r^headroom times as wide
  /// as all of them say: what few samples excite gets no large factor, which other data would pay for by clipping.
  double headroom = 2;
};

struct Equalized {
  std::optional<onnx::Parsed> model;  ///< the float model with other weights; none: nothing to equalize
  std::vector<std::string> tensors;   ///< that got factors, as weighted layers read them
};
/// A float model that computes what `parsed`, imported as `model`, computes on the data (up to float rounding), with equalized channels. A Clip keeps its
/// bounds: factors are such that no value of the data reaches a bound that it did not reach before; other data may be clipped where
/// they exceed everything that was seen, as they are by the ranges. One run of the float network over the data.
[[nodiscard]] Result<Equalized> equalize(const onnx::Parsed& parsed, const onnx::Model& model, const Data& data, int threads,
                                         const EqualizeOptions& options, const Progress& progress);

}  // namespace octavo::quantize
