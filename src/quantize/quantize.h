// From a float model and data to ranges, or to a model with Q/DQ pairs: docs/quantize.md.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "onnx/import/import.h"
#include "quantize/correction/equalize.h"
#include "quantize/correction/fit.h"
#include "quantize/data/data.h"
#include "quantize/data/statistics.h"
#include "quantize/metrics/output_error.h"
#include "quantize/ranges/ranges.h"
#include "quantize/search/search.h"

namespace octavo::quantize {

struct Options {
  onnx::ImportOptions import;    ///< shapes of open dimensions
  Method method = Method::best;  ///< of ranges of activations
  RangeOptions ranges;           ///< symmetric for TensorRT's tables
  /// A network that head_of knows is quantized a second time with ranges by min-max, and of the two the one is kept whose scores at
  /// objects (score_change) differ less from float's on the data: Outcome::scores. Not for data without an object, nor for other networks.
  /// Costs the statistics nothing, and everything after them twice: fitting, and runs of both networks over the data.
  bool minmax_for_detectors = true;
  bool pairs = true;  ///< make a model with Q/DQ pairs; false: ranges only
  std::string placement = "borders";
  FitOptions fit;        ///< of weights and biases; for pairs and `float_model` only: a table has no place for them
  bool equalize = true;  ///< channels between layers are equalized first; as `fit`, for pairs and `float_model` only
  EqualizeOptions equalization;
  /// With ranges only: also make the float model that belongs to them, whose channels are equalized, whose weights lie on the codes
  /// that they are rounded to, and whose biases are corrected. The ranges are those of its tensors, and of no other model.
  bool float_model = false;
  /// A layer stays float if its results have a signal to noise below this, in dB, when only this layer is rounded, and if the outputs gain at least one dB
  /// by it, because float costs time. With ranges only, the tensor that it reads gets no range. 0: every layer is rounded. Layers of usual
  /// networks have 28 to 45 dB. Lower values come from a tensor whose channels share one scale and differ by orders of magnitude. One such
  /// layer can cost more than all others together, or almost nothing.
  double least_layer_sqnr = 22;
  /// > 0: the network is fitted in this number of stages, each to the final results of the stages before it. 0: each layer is
  /// fitted to its own rounded input only.
  int stages = 0;
  /// With pairs: layers leave int8 until this holds on the data (docs/quantize.md); it needs no `measure`.
  AccuracyBound bound;
  /// The types that layers may have then: int8, and bfloat16, float32 or both. bfloat16 comes first (search_precision).
  std::set<std::string> allowed = {"int8", "float32"};
  /// Only layers that this processor computes in bfloat16 go to it: for an engine that is built here.
  bool needs_kernels = false;
  /// How good a network's answers on the data are, 0 to 1: for AccuracyBound::max_drop.
  std::function<Result<double>(const Network&)> score;
  std::string score_name = "top-1";
  /// Also quantize without any correction, and then with one more correction each time: Outcome::gains. One more run for each correction.
  bool gains = false;
  bool measure = true;  ///< compare the outputs with the float network's on the data
  int threads = 1;
  std::int64_t rows_bytes = std::int64_t{192} << 20;  ///< for what layers read, kept in memory; twice that with stages
  /// What is being done, and how many of `count` samples or layers are done.
  std::function<void(const std::string& step, std::size_t done, std::size_t count)> progress;
};

struct TensorRange {
  std::string name;
  float min = 0, max = 0;  ///< seen
  Method method = Method::minmax;
  Interval interval;
  ir::Quantizer quantizer;
};

struct LayerResult {
  std::string node, op, input;
  bool int8 = false;
  bool bfloat16 = false;   ///< by the search: in a model with pairs it has none, and the builder is to be told (Outcome::bfloat16)
  std::string why_float;   ///< when not int8
  std::string not_fitted;  ///< why its weights are rounded to nearest; empty: fitted
  double nearest = 0;      ///< signal to noise of its results on the data in dB, rounded to nearest; 0: not known
  double fitted = 0;       ///< as written
};

/// In the metadata of a model with pairs, and in the notes of engines built from it: {node: why it stays float, and what int8 would have
/// cost} as JSON. Absent when every layer is int8.
inline constexpr const char* kKeptFloat = "octavo.kept_float";

/// The signal to noise at the outputs with one correction added to those before it.
struct Gain {
  std::string correction;
  double sqnr = 0;  ///< dB on the data; infinite without an error
};

/// The ranges with which a detector's scores at objects change less, on the data.
struct ScoreChoice {
  Method first = Method::best;   ///< the method that the caller gave
  Method chosen = Method::best;  ///< this, or minmax
  std::size_t objects = 0;       ///< 0: there was nothing to compare, and minmax was not tried
  double change = 0;             ///< mean change of the scores with ranges by `first`
  std::optional<double> minmax;  ///< the same with ranges by min-max
};

struct Outcome {
  std::vector<TensorRange> tensors;        ///< in the order of the graph
  std::vector<std::string> without_range;  ///< tensors that were never anything but 0, or no number
  std::vector<LayerResult> layers;
  std::optional<onnx::Parsed> model;   ///< with pairs; Options::float_model: the float model. onnx::model_bytes writes it
  std::vector<std::string> equalized;  ///< tensors whose channels got factors
  std::vector<std::string> warnings;
  std::vector<OutputError> outputs;       ///< on the data, when measured
  std::vector<OutputError> nearest;       ///< the same of the model before weights and biases were fitted; with pairs
  std::optional<ScoreChoice> scores;      ///< of a detector, with Options::minmax_for_detectors; measured before a search
  std::optional<PrecisionSearch> search;  ///< with a bound
  std::vector<Gain> gains;                ///< the first is without any correction; when asked for
  std::size_t samples = 0;
  std::int64_t raised_from = 0;  ///< the model's opset where it had to become 13; 0: it stayed
  [[nodiscard]] ir::Ranges ranges() const;
  /// Nodes that the search gave to bfloat16. The model does not record this; `rules_for` makes the rules that a build needs.
  [[nodiscard]] std::set<std::string> bfloat16() const;
  /// {tensor: largest magnitude / 127}: the ranges in a table without zero points.
  [[nodiscard]] std::map<std::string, float> scales() const;
  /// Everything above but the model, as JSON.
  [[nodiscard]] std::string report() const;
};

/// `parsed`: a float ONNX model, and `model`: the same, imported as `options.import` says. The same arguments give the same outcome on any
/// number of threads. Whoever watches the calling thread (base/task.h) can stop it. Errors: those of import and planning; usage for a model
/// that has Q/DQ pairs, or without anything to quantize; bad_input for data that does not fit or holds NaN.
[[nodiscard]] Result<Outcome> quantize(const onnx::Parsed& parsed, const onnx::Model& model, const Data& data,
                                       const Options& options);

}  // namespace octavo::quantize
