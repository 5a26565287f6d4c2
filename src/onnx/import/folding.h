// Which nodes of constants an import evaluates. That is meant for shape arithmetic and weights. It is not for running half a network,
// or for filling memory and hours from a few bytes of file.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace octavo::onnx {

/// About the steps that the reference takes for `n`, never far too few: for operators without a formula, the square of their elements.
[[nodiscard]] double folding_steps(const ir::Graph& g, const ir::Node& n, const std::vector<ir::TensorType>& types);

/// What an import may still spend. One node, in steps: 1e8. All nodes: 4e8, about a second, and 64 for each element of the initializers.
/// Its results may have up to 2^24 elements, or four times those of its operands. A node that costs more is left to the runs of the network.
class FoldingBudget {
 public:
  /// So many elements of the file have been read.
  void grant(std::int64_t elements) { left_ += kStepsOfElement * static_cast<double>(elements); }
  /// Pays for `n` with results of `types`. False: it is too dear, and nothing is paid.
  [[nodiscard]] bool pay(const ir::Graph& g, const ir::Node& n, const std::vector<ir::TensorType>& types);

 private:
  static constexpr double kStepsOfElement = 64;
  double left_ = 4e8;
};

}  // namespace octavo::onnx
