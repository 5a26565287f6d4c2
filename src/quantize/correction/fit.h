// Weights and bias of one layer for the data that the layer really gets: rounded, so that its results change least.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/quantizer.h"
#include "quantize/data/patches.h"

namespace octavo::quantize {

struct FitOptions {
  bool least_error_scales = true;  ///< scales of weights by least error; false: max|w| / 127
  bool correct_bias = true;        ///< the mean of each channel's results stays what it was
  /// Weights are rounded one after the other, each making up for the errors of those before it (second-order rounding: nearest plane
  /// on the Gram matrix of the layer's rounded input, as OBQ and GPTQ do).
  bool learned_rounding = true;
  /// What is tried for each group of channels: how much the weights are held where they are, as a part of the mean diagonal of the
  /// Gram matrix. Fitted on the even samples, the one that changes the results of the odd samples least is taken (or rounding to
  /// nearest, where that is better), and then fitted on all of them.
  std::vector<double> damping = {0.01, 0.1, 1.0};
  /// The largest code of every channel is 127 in magnitude, so that codes times scale, as float weights, are quantized to these codes
  /// again by who takes max|w| / 127.
  bool full_range = false;
  std::int64_t most_depth = 2304;  ///< larger layers are rounded to nearest (the Gram matrix grows with the square)
};

struct Fit {
  std::vector<std::int8_t> codes;  ///< [group][k][m], as RowLayer
  std::vector<float> scale;        ///< [group][m]
  std::vector<float> bias_change;  ///< [group][m]; zeros without correction
  double signal = 0;               ///< variance of the layer's float results, summed over channels
  double nearest = 0, fitted = 0;  ///< mean squared change of the results: scales max|w| / 127 rounded to nearest, and as returned
  bool learned = false;
};

/// `exact`: rows of the float network; `given`: the same rows as the quantized layer reads them (already rounded). `weights` as
/// RowLayer::weights; targets are exact * weights. Deterministic. Cost: depth^2 * (rows + channels) for each group. Not whole where the thread's
/// task is cancelled (base/task.h): whoever called it fails then.
[[nodiscard]] Fit fit_layer(const RowLayer& layer, const std::vector<float>& weights, const Rows& exact, const Rows& given,
                            const FitOptions& options);

/// x -> q(x) for a per-tensor quantizer.
void round_through(const ir::Quantizer& q, std::span<const float> from, std::span<float> to);

}  // namespace octavo::quantize
