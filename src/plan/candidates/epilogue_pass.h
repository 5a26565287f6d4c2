// Which epilogues are worth a pass of their own.
//
// Candidate epilogue-pass:  f(g(anchor(x)))  <==>  g(anchor(x)); then f by a pass of its own
//   Why    kernels of norms, reductions, resizing and moves run their epilogue operation by operation over small blocks, which takes longer than a
//          generated pass over memory where it is long: a GELU behind a norm, exponents behind a running sum.
//   Exact  bit for bit: the same operations on the same floats.
//   Needs  an anchor that is no convolution or product, an epilogue of 20 operations at least, and 16384 elements; f begins with the first
//          nodes that are more than a few operations.
//   Order  on the default plan. Default: in the region of the anchor.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "region/region.h"

namespace octavo::plan {

/// The nodes that f begins with, several where the epilogue has branches; none where it is short.
[[nodiscard]] std::vector<ir::NodeId> costly_epilogue(const ir::Graph& g, const region::Region& r);

}  // namespace octavo::plan
