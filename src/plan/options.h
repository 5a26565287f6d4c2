// What a caller may ask of the planner.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/quantizer.h"
#include "ir/tensor.h"
#include "plan/cost.h"
#include "plan/layer_type.h"

namespace octavo::plan {

struct Decided;            // plan/decided.h
struct SampledMagnitudes;  // plan/candidates/magnitudes.h

/// A network input's or output's memory, as its caller wants it ("int8:hwc", "fp16:chw32").
struct BindingFormat {
  std::optional<ir::DType> type;  ///< nothing: the model's
  std::string layout = "chw";     ///< "chw", "hwc", "chw4", "chw16", "chw32", "hwc8", "hwc16", "dhwc..." as documented
};

/// A rule by name pattern (shell style: * and ?), the first that matches counts.
struct PrecisionRule {
  std::string pattern;  ///< of ONNX node names or tensor names
  LayerType type;       ///< not tf32
};

[[nodiscard]] constexpr LayerTypes default_types() {
  return {LayerType::int8, LayerType::float32};
}

struct PlanOptions {
  int threads = 1;                              ///< the thread count the plan is made for
  std::set<std::string, std::less<>> disabled;  ///< rules, fusions and planner switches to leave out, by name
  std::set<std::string, std::less<>> forced;    ///< choices taken otherwise than by default wherever that is possible
  /// Choices, or kinds, whose other candidate pays nearly always on the device that is planned for. Taken where plans are not searched.
  std::set<std::string, std::less<>> usual;
  /// Choices, by name or kind, neither candidate of which pays nearly always on the device: priced at every effort.
  std::set<std::string, std::less<>> priced;
  bool verify = false;  ///< verify the graph after every rule application
  std::function<void(std::string_view rule, const std::string& graph_text)> dump;

  int effort = 0;  ///< the level: what it means is a row of plan/effort.h
  /// Largest error that permitted views and bfloat16 may make, as a part of an output's largest magnitude; nothing: no limit.
  std::optional<double> max_error;
  Costs* costs = nullptr;  ///< nullptr: the providers' estimates
  /// Decisions of an earlier planning of the same model for other shapes, which are taken over; nothing is searched or timed. With
  /// Decided::prefers they only say which of equally fast tactics is taken.
  std::shared_ptr<const Decided> follow;

  /// Implicit quantization: ranges of tensors of the float graph by ONNX tensor name, as one quantizer each. Empty: explicit only.
  ir::Ranges ranges;
  /// The model's own Q/DQ pairs permit their roundings instead of demanding them (plan/precision/permit_pairs.h).
  bool permit_pairs = false;
  /// With permit_pairs: the pairs between a weighted operator and its activation stay, because a table may be faster than arithmetic
  /// (plan/precision/choose_pairs.h tries it).
  bool inner_pairs = false;
  std::vector<PrecisionRule> precisions;  ///< layers or tensors by name pattern
  LayerTypes allowed = default_types();   ///< types that anchors may compute in (with permitted views)
  /// The float type that the model gives to the result of each ONNX node, by the node's name, if the device computes in types of 16 bits: rounding to
  /// such a type is what the model says and needs no permission. Empty: all floats are float32.
  std::map<std::string, ir::DType> model_types;
  /// Tensors near the end of float16 on one random input; make_plan finds them, whatever is given.
  std::shared_ptr<const SampledMagnitudes> magnitudes;
  std::map<std::string, BindingFormat> bindings;  ///< by input or output name
};

}  // namespace octavo::plan
