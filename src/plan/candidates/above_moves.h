// Candidate above-moves:  g(moves(f(gemm(x, W)))) ==> moves(g(f(gemm(x, W_part)))), f and g pointwise, moves: reshape, transpose, slice
//   Why    attention reads parts of one linear layer as heads, each scaled and quantized by itself. Behind the moves that is a pass over memory for each,
//          and the layer stores all columns for every reader: as floats for one, as codes for another. In front of them each part is stored once, as it is read.
//   Exact  bit for bit: each element goes through the same operations. A float that was only stored in 16 bits between them is not rounded to them any more.
//   Needs  an integer linear layer; behind it pointwise operations with constants (of one number behind a move) and moves, up to readers of 1 to 4 different
//          ranges of its columns, each whole rows, that do not overlap; one of them behind a pointwise operation that follows a move.
//   Order  on the normalized graph, behind the laws. Parts run side by side where a kernel takes them together. Default: behind the moves; on a GPU in front.
//   Says   collect
#pragma once

#include <optional>
#include <set>

#include "base/reason.h"
#include "ir/graph.h"
#include "ir/grid.h"

namespace octavo::plan {

/// Nothing if what is read of `gemm` can be computed in front of moves; else the condition that fails, with the values.
[[nodiscard]] std::optional<Reason> why_no_above_moves(const ir::Graph& g, const ir::Grids& grids, ir::NodeId gemm);
/// Rewrites it, and gives what is stored of the parts; without effect, and nothing, where why_no_above_moves gives a reason. Cost: copies the weights of parts.
std::set<ir::ValueId> make_above_moves(ir::Graph& g, const ir::Grids& grids, ir::NodeId gemm);

}  // namespace octavo::plan
