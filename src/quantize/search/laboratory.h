// The laboratory of the search of precision for a network and its data: builds the networks, runs them, asks the planner for times.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "onnx/import/import.h"
#include "quantize/data/data.h"
#include "quantize/data/network.h"
#include "quantize/search/run_time.h"
#include "quantize/search/search.h"

namespace octavo::quantize {

/// What is searched. References outlive the call.
struct Searched {
  const onnx::Model& exact;         ///< what errors are measured against
  std::vector<std::string> layers;  ///< nodes that are int8
  /// The model with Q/DQ pairs on all layers but these.
  std::function<Result<onnx::Model>(const std::set<std::string>& in_float)> make;
  const Bfloat16Layers* bfloat16 = nullptr;  ///< nullptr: no layer goes to it
  bool needs_kernels = false;                ///< only layers that this processor computes in bfloat16 go to it
  bool may_float32 = true;
  const Data& data;
  int threads = 1;
  const AccuracyBound& bound;
  std::function<Result<double>(const Network&)> score;  ///< for bound.max_drop
  std::function<void(const std::string& step, std::size_t done, std::size_t count)> progress;
};

/// search_precision, measured. Layers in bfloat16 are emulated (the rule bfloat16-emulated), so that accuracy can be measured on any
/// processor; their times are those of the kernels that compute in it, and float32's where this processor has none.
[[nodiscard]] Result<PrecisionSearch> search_layers(const Searched& searched);

/// Plan options for measuring a network whose layers `nodes` are bfloat16.
[[nodiscard]] plan::PlanOptions emulating(const std::set<std::string>& nodes);

}  // namespace octavo::quantize
