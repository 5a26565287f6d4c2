// Which layers go back to float so that a bound on the accuracy holds, at the least time: sensitivity measured on data.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace octavo::quantize {

/// What must hold on the data. Nothing given: nothing is searched.
struct AccuracyBound {
  std::optional<double> min_sqnr;  ///< dB at the outputs
  std::optional<double> max_drop;  ///< of the score (share of right classes, average precision), 0 to 1
  [[nodiscard]] bool given() const { return min_sqnr || max_drop; }
};

/// A network with some layers in float, measured.
struct CurvePoint {
  std::set<std::string> in_float;
  double sqnr = 0;              ///< dB at the outputs; infinite without an error
  std::optional<double> score;  ///< Laboratory::measure
  double seconds = 0;           ///< a run, as the planner estimates it for one thread
  bool chosen = false;
};
struct Sensitivity {
  std::string node;
  double sqnr = 0;  ///< dB at the outputs when this layer alone is int8
  double gain = 0;  ///< seconds that int8 saves, as the planner estimates them
  bool in_float = false;
};
struct PrecisionSearch {
  std::vector<Sensitivity> layers;  ///< in the order in which they go to float: most noise a second gained first
  std::vector<CurvePoint> curve;    ///< by the number of layers in float
  std::optional<double> float_score;
};

/// How networks with some layers in float are measured; the search decides nothing else about them.
struct Laboratory {
  std::vector<std::string> layers;     ///< nodes that are int8
  std::map<std::string, double> gain;  ///< of each, seconds; a layer that is not in it gains nothing
  /// sqnr of few samples, for comparing layers.
  std::function<Result<double>(const std::set<std::string>& in_float)> noise;
  /// Everything, on all samples.
  std::function<Result<CurvePoint>(const std::set<std::string>& in_float)> measure;
  std::optional<double> float_score;
};

/// Layers go to float in the order of (noise when alone in int8) / (seconds gained) until the bound holds: the shortest such prefix
/// by bisection, from which those that are not needed come back. Cost: a call of `noise` for each layer, some 10 + 16 of `measure`.
/// Errors: those of the laboratory; usage when the bound does not hold with all layers in float.
[[nodiscard]] Result<PrecisionSearch> search_precision(const Laboratory& laboratory, const AccuracyBound& bound);

/// The curve as a picture: accuracy over time, the chosen point marked.
[[nodiscard]] std::string curve_svg(const PrecisionSearch& search);

}  // namespace octavo::quantize
