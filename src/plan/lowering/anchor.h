// Lowering of one anchor: operands in the form that the kernel contract (region/region.h) asks for, and what acc means to the
// epilogue.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/grid.h"
#include "plan/memo.h"
#include "plan/regions/epilogue.h"
#include "region/region.h"

namespace octavo::plan {

struct AnchorReader {
  std::function<Result<region::TensorRef>(ir::ValueId, Repr)> read;
  std::function<Result<region::TensorRef>(ir::ValueId, Repr)> read_channel_last;
  std::function<Result<region::TensorRef>(ir::ValueId, Repr)> read_rows;  ///< with the elements of the last dimension side by side
  std::function<region::BufferId(const ir::Tensor&, const std::string&)> constant;
  LoweredWeights& weights;
};

/// Fills stage.anchor, tells the builder what acc is, appends the values read to `inputs`, and says precision and reasons.
[[nodiscard]] Status lower_anchor(const ir::Graph& g, const ir::Grids& grids, ir::NodeId anchor, const AnchorReader& reader,
                                  region::Stage& stage, EpilogueBuilder& builder, std::vector<ir::ValueId>& inputs,
                                  region::Region& region);

/// gemm and 1-D images are given to kernels as 2-D convolutions: adds the missing unit dimensions to space, operands and stores.
void adapt_rank(region::Stage& stage);

}  // namespace octavo::plan
