// One run of the float network over the data: histograms of its tensors, and rows of what its layers read.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "onnx/edit/layers.h"
#include "onnx/import/import.h"
#include "quantize/data/histogram.h"
#include "quantize/data/network.h"
#include "quantize/data/patches.h"

namespace octavo::quantize {

/// The layers of a model that rows can be taken of, beside the tensors they read.
struct LayerInputs {
  std::vector<onnx::Layer> layers;   ///< every weighted layer
  std::vector<RowLayer> rows;        ///< parallel to `layers`
  std::vector<std::size_t> tensors;  ///< parallel: the index of the observable that the layer reads; npos: not observed
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);
};
/// Finds each layer's input among the observables, by its name or by what the name is an alias of.
[[nodiscard]] LayerInputs layer_inputs(std::vector<onnx::Layer> layers, const std::vector<Observable>& observed,
                                       const std::map<std::string, std::string>& aliases);

struct Statistics {
  std::vector<Histogram> histograms;  ///< parallel to the observables
  std::vector<Rows> rows;             ///< parallel to LayerInputs::layers; empty without
  std::vector<std::string> warnings;  ///< samples that are constant, tensors with NaN or infinite values: a line each
};
/// Errors: bad_input without samples, or with a sample that holds NaN or infinite values (naming it); those of running.
/// Memory: a histogram for each tensor (256 KiB), `rows_bytes`, and one set of tensors for each thread; nothing for each sample.
[[nodiscard]] Result<Statistics> collect(const onnx::Model& model, const std::vector<Observable>& observed,
                                         const LayerInputs& layers, const Data& data, int threads, std::int64_t rows_bytes,
                                         const Progress& progress);

/// Fills `rows` (parallel to `numbers`, indices of layers) from a network that observes exactly these layers' inputs, in that order.
[[nodiscard]] Status collect_rows(const Network& network, const LayerInputs& layers, const std::vector<std::size_t>& numbers,
                                  const Data& data, int threads, std::vector<Rows>& rows, const Progress& progress);

}  // namespace octavo::quantize
