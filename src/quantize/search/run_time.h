// What the planner thinks a network costs, and which layers can compute in bfloat16.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "onnx/import/import.h"
#include "plan/options.h"
#include "region/provider.h"

namespace octavo::quantize {

/// Rules that give the nodes `type`, each by its own name: what a pattern would read otherwise is escaped.
[[nodiscard]] std::vector<plan::PrecisionRule> rules_for(const std::set<std::string>& nodes, plan::LayerType type);

struct RunTime {
  double seconds = 0;                    ///< of the whole network, on one thread
  std::map<std::string, double> nodes;   ///< of the regions of `nodes`
  std::set<std::string> without_kernel;  ///< of those in `bfloat16`: `providers` do not compute them so, and the price is float32's
};
/// By the processor's estimates, for the plan of effort 0: nothing is run or measured. `bfloat16`: these compute in it, where they are
/// not int8 by their pairs.
[[nodiscard]] Result<RunTime> estimated_time(const onnx::Model& model, const std::set<std::string>& nodes,
                                             const std::set<std::string>& bfloat16 = {});
/// The same for other providers.
[[nodiscard]] Result<RunTime> estimated_time(const onnx::Model& model, const std::set<std::string>& nodes,
                                             const std::set<std::string>& bfloat16,
                                             const std::vector<const region::Provider*>& providers);

/// Which weighted layers of a float network may compute in bfloat16, and which of them no kernel here takes.
struct Bfloat16Layers {
  std::set<std::string> possible;  ///< nodes with constant weights and a float32 input
  std::set<std::string> without_kernel;
  std::string why;  ///< of the first of those: kernels and what they refuse
};
[[nodiscard]] Result<Bfloat16Layers> bfloat16_layers(const onnx::Model& model);

}  // namespace octavo::quantize
