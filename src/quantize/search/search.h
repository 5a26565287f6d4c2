// Which layers leave int8, and for which type, so that a bound on the accuracy holds at the least time: sensitivity measured on data.
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

/// The layers that are not int8.
struct WideLayers {
  std::set<std::string> float32, bfloat16;
  [[nodiscard]] std::size_t size() const { return float32.size() + bfloat16.size(); }
  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] bool contains(const std::string& node) const { return float32.contains(node) || bfloat16.contains(node); }
  bool operator==(const WideLayers&) const = default;
};

/// A network with some layers in wider types, measured.
struct CurvePoint {
  WideLayers wide;
  double sqnr = 0;                       ///< dB at the outputs; infinite without an error
  std::optional<double> score;           ///< Laboratory::measure
  double seconds = 0;                    ///< a run, as the planner estimates it for one thread
  std::set<std::string> without_kernel;  ///< of wide.bfloat16: nothing here computes them so, and `seconds` counts float32 for them
  bool chosen = false;
};
struct Sensitivity {
  std::string node;
  double sqnr = 0;  ///< dB at the outputs when this layer alone is int8
  double gain = 0;  ///< seconds that int8 saves over the type that the layer goes to first, as the planner estimates them
  std::optional<double> sqnr_bfloat16;  ///< dB when this layer alone is bfloat16; where it may be
  std::string type = "int8";            ///< "int8", "bfloat16" or "float32": chosen
};
struct PrecisionSearch {
  std::vector<Sensitivity> layers;  ///< in the order in which they leave int8: most noise a second gained first
  std::vector<CurvePoint> curve;    ///< by the number of layers that are not int8
  std::optional<double> float_score;
};

/// How networks with some layers in wider types are measured; the search decides nothing else about them.
struct Laboratory {
  std::vector<std::string> layers;     ///< nodes that are int8
  std::set<std::string> may_bfloat16;  ///< of these, the ones that may be bfloat16
  bool may_float32 = true;             ///< every layer may be float32; false: those that do not go to bfloat16 stay int8
  /// Of each layer, seconds: what int8 saves over float32 and over bfloat16. A layer that is not in it gains nothing.
  std::map<std::string, double> gain, gain_over_bfloat16;
  /// sqnr of few samples, for comparing layers.
  std::function<Result<double>(const WideLayers& wide)> noise;
  /// Everything, on all samples.
  std::function<Result<CurvePoint>(const WideLayers& wide)> measure;
  std::optional<double> float_score;
};

/// Layers leave int8 in the order of (noise when alone in int8) / (seconds gained) until the bound holds: the shortest such prefix
/// by bisection, from which those that are not needed come back. Each goes to bfloat16 first, where it may and makes less noise in it
/// than in int8 (8 bits of significand are no more than 8 bits of a well chosen range); otherwise to float32, and so do, where the
/// bound does not hold with all of them in bfloat16, as few as it takes, those first that make most noise in bfloat16 a second saved.
/// Cost: a call of `noise` for each layer (two where it may be bfloat16), some 10 + 16 (20 + 32) of `measure`.
/// Errors: those of the laboratory; usage when the bound does not hold with all layers in the widest type that they may have.
[[nodiscard]] Result<PrecisionSearch> search_precision(const Laboratory& laboratory, const AccuracyBound& bound);

/// The curve as a picture: accuracy over time, the chosen point marked.
[[nodiscard]] std::string curve_svg(const PrecisionSearch& search);

}  // namespace octavo::quantize
