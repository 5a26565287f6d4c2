// One run of the float network over the data: histograms of its tensors, and rows of what its layers read.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "onnx/edit/layers.h"
#include "onnx/import/import.h"
#include "quantize/histogram.h"
#include "quantize/network.h"
#include "quantize/patches.h"

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

/// How far two networks' outputs are apart on the data.
struct OutputError {
  std::string name;
  double signal = 0, noise = 0;  ///< sums of squares of the first network's values and of the differences
  /// One value of both networks. What is not finite counts only where the other differs.
  void add(double exact, double other);
  [[nodiscard]] double sqnr() const;  ///< 10 log10(signal / noise); infinite without noise
};
/// Of one sample that both have run on, output by output, without names. Only float32 outputs count.
[[nodiscard]] std::vector<OutputError> errors_of(const Network::Runner& exact, const Network::Runner& other, std::size_t outputs);
/// `sums` and `more` are parallel.
void add_errors(std::vector<OutputError>& sums, const std::vector<OutputError>& more);
/// Both networks have the same outputs; only float32 ones count. `also`: what else is done with each sample, as `visit` of for_each
/// does it; its runners are those of `exact` and of `other`.
[[nodiscard]] Result<std::vector<OutputError>> compare(const Network& exact, const Network& other, const Data& data, int threads,
                                                       const Progress& progress,
                                                       const std::function<InOrder(const Visit&)>& also = {});
/// Samples whose right class (`labels`, parallel to the data) scores highest in the first output; the first of equal scores counts.
[[nodiscard]] Result<std::size_t> right_answers(const Network& network, const Data& data, const std::vector<std::int64_t>& labels,
                                                int threads);
/// Of all outputs together.
[[nodiscard]] double sqnr_of(const std::vector<OutputError>& outputs);

}  // namespace octavo::quantize
