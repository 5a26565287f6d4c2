// The nodes of an ONNX file as they stand in it, for pictures of the model beside its plan.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

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

/// The nodes of the main graph, without the insides of functions and subgraphs. Errors: those of reading the file.
[[nodiscard]] Result<GraphNodes> nodes_of_file(const std::string& path);
/// `name`: how errors call the model.
[[nodiscard]] Result<GraphNodes> nodes_of_bytes(std::span<const std::byte> model, const std::string& name);

}  // namespace octavo::onnx
