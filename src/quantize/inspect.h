// Where a quantized model loses accuracy on data: each rounded tensor's saturation, codes and distance from float.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/quantizer.h"
#include "onnx/import/import.h"
#include "quantize/data.h"
#include "quantize/network.h"

namespace octavo::quantize {

/// A float tensor that a QuantizeLinear reads. Shares and sums are over all elements of all samples.
struct RoundedTensor {
  std::string name;
  ir::Quantizer quantizer;
  std::uint64_t elements = 0, saturated = 0;  ///< values that no code holds: they are clipped
  int codes = 0;                              ///< different codes that occur
  double signal = 0;                          ///< sum of squares without any rounding of activations
  double alike = 0;                           ///< sum of squared changes by this rounding alone: fed by the float network
  double own = 0;                             ///< before this rounding, from all roundings before it: fed by the quantized network
  [[nodiscard]] double saturation() const {
    return elements > 0 ? static_cast<double>(saturated) / static_cast<double>(elements) : 0;
  }
  [[nodiscard]] double alike_sqnr() const;  ///< dB; infinite without an error
  [[nodiscard]] double own_sqnr() const;
};

/// Tensors with one scale, in the order of the graph. The float network is the model itself without its activations' Q/DQ pairs, so
/// that the rounding of weights, which both have, is no part of the distance. Errors: usage for a model without such pairs; those of
/// running. The same result on any number of threads.
[[nodiscard]] Result<std::vector<RoundedTensor>> inspect(const onnx::Model& model, const Data& data, int threads,
                                                         const Progress& progress);

/// Signal to noise of each tensor as a picture: one column a tensor, in the order of the graph.
[[nodiscard]] std::string inspection_svg(const std::vector<RoundedTensor>& tensors);

}  // namespace octavo::quantize
