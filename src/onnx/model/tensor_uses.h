// Who makes and who reads a tensor of an ONNX file, by the names in the file: for reports about tensors that import folded away.
#pragma once

#include <string>
#include <vector>

#include "onnx/model/parsed.h"

namespace octavo::onnx {

struct TensorUses {
  struct Reader {
    std::string node, type;  ///< as import names it (OP_INDEX for a node without a name)
    int slot = 0;
  };
  std::string maker;       ///< ONNX node; empty: an initializer, an input, or nothing of the file
  std::string maker_type;  ///< "Conv", "initializer", "input"; empty: the file's graph does not have the tensor
  std::vector<Reader> readers;
  bool output = false;  ///< an output of the network
};

/// The uses in the main graph, without the insides of functions and subgraphs.
[[nodiscard]] TensorUses uses_of_tensor(const Parsed& model, const std::string& tensor);

/// Every tensor name in the main graph: inputs, initializers, results of nodes; sorted.
[[nodiscard]] std::vector<std::string> tensor_names(const Parsed& model);

}  // namespace octavo::onnx
