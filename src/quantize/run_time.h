// What the planner thinks a network costs.
#pragma once

#include <map>
#include <set>
#include <string>

#include "base/result.h"
#include "onnx/import/import.h"

namespace octavo::quantize {

struct RunTime {
  double seconds = 0;                   ///< of the whole network, on one thread
  std::map<std::string, double> nodes;  ///< of the regions of `nodes`
};
/// By the processor's estimates, for the plan of effort 0: nothing is run or measured.
[[nodiscard]] Result<RunTime> estimated_time(const onnx::Model& model, const std::set<std::string>& nodes);

}  // namespace octavo::quantize
