// The reference evaluator: the one definition of truth. Slow, scalar, obviously right; every fma, division and rounding explicit.
#pragma once

#include <map>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "ir/grid.h"

namespace octavo::reference {

/// Evaluates one node (not input/constant). `inputs` are dense tensors in the declared types; an absent optional input is an empty
/// tensor. Integer anchors (classify_anchor): recover the codes from the values (exact: rne(x/s)+zp), accumulate in int64, check
/// int32 range, then
///   y = fma(float(acc), fl(sx*sw[c]), bias[c])   (bias absent: float(acc) * fl(sx*sw[c]); bias_in_acc: added to acc before).
/// avg_pool and reduce_mean/sum over spatial axes on an 8-bit per-tensor grid: S = exact integer sum of (code - zp); y =
/// (float(S)*s)/count. Float sums go in row-major order in f32 with fma(x, w, acc).
[[nodiscard]] Result<std::vector<ir::Tensor>> evaluate_node(const ir::Graph& g, const ir::Grids& grids, ir::NodeId node,
                                                            const std::vector<ir::Tensor>& inputs);

/// Evaluates the whole graph; `feeds` parallel to g.inputs. Returns tensors parallel to g.outputs.
[[nodiscard]] Result<std::vector<ir::Tensor>> evaluate(const ir::Graph& g, const std::vector<ir::Tensor>& feeds);

/// Evaluates the sub-graph between given values: `known` maps ValueIds to tensors (they are not recomputed); returns the tensor of
/// each `wanted` value. Constants are known by themselves. Used to judge one region with the engine's own inputs.
[[nodiscard]] Result<std::vector<ir::Tensor>> evaluate_between(const ir::Graph& g, const std::map<ir::ValueId, ir::Tensor>& known,
                                                               const std::vector<ir::ValueId>& wanted);
/// The same with grids computed once by the caller (ir::find_grids(g)), for many calls on one graph.
[[nodiscard]] Result<std::vector<ir::Tensor>> evaluate_between(const ir::Graph& g, const ir::Grids& grids,
                                                               const std::map<ir::ValueId, ir::Tensor>& known,
                                                               const std::vector<ir::ValueId>& wanted);

}  // namespace octavo::reference
