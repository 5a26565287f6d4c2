// Where a quantized model loses accuracy on data: each rounded tensor's saturation, codes and distance from float.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/quantizer.h"
#include "onnx/import/import.h"
#include "plan/options.h"
#include "quantize/data/data.h"
#include "quantize/data/network.h"
#include "quantize/data/statistics.h"
#include "quantize/metrics/output_error.h"

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

/// A layer that is computed in int8, fed by the float network.
struct RoundedLayer {
  std::string node, tensor;  ///< its ONNX node, and what it reads
  double signal = 0;         ///< variance of its float results in each channel, summed
  double noise = 0;  ///< mean square of what changes when its data (and weights, where the float ones are known) are rounded
  [[nodiscard]] double sqnr() const;  ///< dB; infinite without an error
};

/// An implicit model: which views the plan has. Without `planned`, the roundings are the model's own Q/DQ pairs.
struct Implicit {
  const ir::Graph* planned = nullptr;  ///< the normalized graph of the plan
  std::set<std::string> layers;        ///< ONNX nodes that the ranges made int8
  plan::PlanOptions options;           ///< ranges and rules
};

struct Inspection {
  std::vector<RoundedTensor> tensors;  ///< with one scale, in the order of the graph
  std::vector<RoundedLayer> layers;    ///< in the order of the graph
  std::vector<OutputError> outputs;    ///< of the network: what all roundings of activations together change
};

/// The float network is the model as given (implicit), or the model without its activations' Q/DQ pairs: the rounding of weights, which
/// both have, is no part of the distance then. Errors: usage for a model without anything rounded; those of running. The same result on
/// any number of threads.
[[nodiscard]] Result<Inspection> inspect(const onnx::Model& model, const Implicit& implicit, const Data& data, int threads,
                                         const Progress& progress);

/// Signal to noise of each tensor and layer as a picture: one column each, in the order of the graph.
[[nodiscard]] std::string inspection_svg(const Inspection& inspection);

}  // namespace octavo::quantize
