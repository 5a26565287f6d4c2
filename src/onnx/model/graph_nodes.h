// The nodes of an ONNX file as they stand in it, for pictures of the model beside its plan.
#pragma once

#include <string>
#include <vector>

#include "onnx/model/parsed.h"

namespace octavo::onnx {

struct GraphNode {
  std::string name;  ///< as import names it: "Type_index" without a name, "name_index" for a name used before
  std::string op;    ///< "Conv", "com.microsoft.QLinearAdd"
  std::vector<std::string> inputs, outputs;  ///< tensors; "" where an optional one is left out
};
struct GraphNodes {
  std::vector<GraphNode> nodes;              ///< in the order of the file
  std::vector<std::string> inputs, outputs;  ///< of the network; initializers that are also listed as inputs are none
};

/// The nodes of the main graph, without the insides of functions and subgraphs.
[[nodiscard]] GraphNodes nodes_of(const Parsed& model);

}  // namespace octavo::onnx
