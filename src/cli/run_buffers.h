// Inputs and outputs for runs that are timed.
#pragma once

#include <vector>

#include "ir/tensor.h"
#include "region/region.h"

namespace octavo::cli {

/// Random inputs (seed 1) and room for the outputs of a plan. Not to be copied: `in` and `out` point into it.
struct RunBuffers {
  explicit RunBuffers(const region::Plan& plan);
  RunBuffers(const RunBuffers&) = delete;
  RunBuffers& operator=(const RunBuffers&) = delete;

  /// Takes these inputs instead, of the plan's types.
  void feed(std::vector<ir::Tensor> tensors);

  std::vector<ir::Tensor> inputs, outputs;
  std::vector<const void*> in;
  std::vector<void*> out;
};

}  // namespace octavo::cli
