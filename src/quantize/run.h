// One quantization in progress: its steps are in run.cc, write.cc, correct.cc, lossy.cc and widen.cc. Models that are tried on the way
// stay in memory, as messages whose weights are shared.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "onnx/edit/layers.h"
#include "quantize/data/network.h"
#include "quantize/detection/detection.h"
#include "quantize/metrics/output_error.h"
#include "quantize/quantize.h"
#include "quantize/search/run_time.h"

namespace octavo::quantize {

/// Layers of which fewer rows were seen are rounded to nearest and keep their biases: what two pictures say about the twenty values
/// of a squeeze-and-excitation branch does not hold for a third.
inline constexpr std::int64_t kLeastRows = 32;

/// A layer that loses much: dB of its results when it alone is rounded; dB that the outputs lose by it.
struct Lossy {
  double kept = 0, cost = 0;
};

/// What one choice of ranges leads to.
struct Made {
  std::map<std::string, ir::Quantizer> quantizers;
  std::vector<Fit> fits;                       ///< by layer; without codes: not fitted
  std::set<std::string> keep_float;            ///< nodes that get no pairs
  std::map<std::string, Lossy> lossy;          ///< of those, the ones that keep too little in int8
  std::map<std::string, std::string> dropped;  ///< tensors that get no range: the lossy node that reads them
  Outcome out;                                 ///< its model is the one as fitted so far
};

class Run {
 public:
  /// `model`: `parsed` imported with the options.
  Run(const onnx::Parsed& parsed, const onnx::Model& model, const Data& data, const Options& options)
      : parsed_(parsed), model_(model), data_(data), options_(options), corrects_(options.pairs || options.float_model) {}
  Result<Outcome> run();

 private:
  [[nodiscard]] std::string name() const {
    return options_.import.display_name.empty() ? "the model" : "\"" + options_.import.display_name + "\"";
  }
  void report(const std::string& step, std::size_t done, std::size_t count) const {
    if (options_.progress) options_.progress(prefix_ + step, done, count);
  }
  [[nodiscard]] Progress samples(std::string step) const;
  [[nodiscard]] Result<std::shared_ptr<onnx::Editor>> open() const { return onnx::open_model(parsed_); }

  // run.cc
  Status is_float() const;
  /// Another model takes the place of the one that is quantized.
  Status replace(onnx::Parsed parsed);
  Status raise();
  Status equalize_channels();
  /// Ranges by `method`, with everything that corrects what they cost.
  Status make(const std::vector<Histogram>& histograms, Method method);
  /// Of a detector: quantizes with ranges by min-max too, and keeps that where the scores at objects change less by it. Large values
  /// that are rare carry the objects in some detectors and not in others, and no tensor by itself says which. `before`: the outcome
  /// before the first choice of ranges.
  Status try_minmax(const std::vector<Histogram>& histograms, const Outcome& before);
  Status choose_ranges(const std::vector<Histogram>& histograms, Method method);
  /// The model as it was given: what errors are measured against.
  [[nodiscard]] const onnx::Model& reference() const { return exact_ ? *exact_ : model_; }
  /// What came out so far: the model of the outcome, or the model as given; with the ranges where it has no pairs.
  [[nodiscard]] Result<Network> rounded_network() const;
  /// The model as it was given, for running; made once.
  Result<const Network*> float_network();
  /// The float network's outputs beside those of what came out so far; `also` as compare takes it.
  Result<std::vector<OutputError>> measure(const std::string& step, const std::function<InOrder(const Visit&)>& also = {});

  // write.cc
  /// The model as fitted so far.
  Result<onnx::QuantizedResult> write();
  /// The float model with the fits so far: weights on their codes, biases corrected.
  Result<onnx::QuantizedResult> write_float();
  /// Puts into the model why layers are float.
  Status note_float_layers();

  // correct.cc
  /// The name of the tensor that layer `l` reads, as the graph knows it; as the file spells it when the graph does not.
  [[nodiscard]] const std::string& input_name(std::size_t l) const;
  [[nodiscard]] LayerResult result_of(std::size_t l) const;
  /// Fits the layers `numbers` to `given`, what they read in the quantized network (parallel to them; rounded here).
  Status fit(const std::vector<std::size_t>& numbers, std::vector<Rows>& given, const std::string& step);
  /// Layers that can be fitted, in their order.
  [[nodiscard]] std::vector<std::size_t> fittable(const std::set<std::string>& quantized) const;
  /// Fits `part` to what the network as fitted so far makes of the layers before.
  Status fit_stage(const std::vector<std::size_t>& part, const std::string& step);
  Status put_and_fit();
  /// Without corrections: what the planner makes of a table, which rounds weights to the nearest code.
  Status round_to_nearest();

  // lossy.cc
  /// Layers that keep too little when they alone are rounded stay float, the worst first, where the outputs keep more by it.
  Status find_lossy();
  /// Of the outputs, with what is float so far.
  Result<double> trial_sqnr(const Data& data);
  [[nodiscard]] std::string why_float(std::size_t l) const;
  /// Takes the ranges of what lossy layers read out of the table.
  void drop_ranges();

  // widen.cc
  /// Before the data are run: what forbids the types that are allowed.
  Status find_bfloat16();
  /// Layers leave int8 until the bound holds.
  Status search();
  void set_float(std::set<std::string> nodes);

  onnx::Parsed parsed_;
  onnx::Model model_;  ///< parsed_ imported
  const Data& data_;
  const Options& options_;
  const bool corrects_;               ///< a model is written, with or without pairs
  std::optional<onnx::Model> exact_;  ///< model_ before its channels were equalized
  std::vector<Observable> observed_;
  LayerInputs inputs_;
  std::vector<Rows> rows_;                   ///< of the float network, by layer
  std::vector<std::vector<float>> weights_;  ///< by layer, as RowLayer::weights
  std::optional<Bfloat16Layers> bfloat16_;
  std::optional<Network> float_network_;
  std::string prefix_;  ///< of the steps that are reported
  Made made_;           ///< so far
};

}  // namespace octavo::quantize
