// Who makes and who reads a tensor of an ONNX file, by the names in the file: for reports about tensors that import folded away.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

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

/// The uses in the main graph, without the insides of functions and subgraphs. Errors: those of reading the file.
[[nodiscard]] Result<TensorUses> uses_of_tensor(const std::string& path, const std::string& tensor);

/// Every tensor name in the main graph: inputs, initializers, results of nodes; sorted.
[[nodiscard]] Result<std::vector<std::string>> tensor_names(const std::string& path);
/// The same of the bytes of a file.
[[nodiscard]] Result<std::vector<std::string>> tensor_names(std::span<const std::byte> model);

}  // namespace octavo::onnx
