// Which values lie on a quantizer's grid: the one analysis that the reference, the laws and the planner share.
#pragma once

#include <optional>
#include <vector>

#include "base/reason.h"
#include "ir/graph.h"

namespace octavo::ir {

/// grid[v] is set when every element of v is known to be a dequantized code of that quantizer: v is a view, a dequantize of
/// codes, a coded constant, or a moving/selecting op over such values (conditions: docs/semantics.md, "moving"). 8-bit only for
/// activations; s32 for coded bias constants. Per-axis grids follow the data through Transpose, Slice, Concat on their axis.
/// relu, clip, max_pool, reduce_max, max/min with equal grids, where: the grid is kept when the result stays on it.
struct Grids {
  std::vector<std::optional<Quantizer>> of;  ///< indexed by ValueId
  [[nodiscard]] const Quantizer* get(ValueId v) const {
    return v != kNone && static_cast<std::size_t>(v) < of.size() && of[static_cast<std::size_t>(v)]
               ? &*of[static_cast<std::size_t>(v)]
               : nullptr;
  }
};
[[nodiscard]] Grids find_grids(const Graph& g);
/// Brings the grids of a graph before these edits up to date, at a cost in proportion to the edits and to the grids that they change.
void update_grids(const Graph& g, const Edits& edits, Grids& grids);

/// The smallest and largest value a per-tensor grid can hold.
[[nodiscard]] float grid_min(const Quantizer& q);
[[nodiscard]] float grid_max(const Quantizer& q);
/// True if x is exactly a dequantized code of the per-tensor quantizer.
[[nodiscard]] bool on_grid(const Quantizer& q, float x);

/// How a conv, conv_transpose, gemm or matmul is to be computed. Integer when the data input lies on an 8-bit grid (per tensor; in
/// depthwise convolutions also per channel, with one zero point) and the weights are a coded 8-bit constant, per tensor or per
/// output channel; a matmul when both of its matrices lie on such grids per tensor (`w` is then the right one's). Otherwise float,
/// and `why_float` says why.
struct IntegerAnchor {
  bool integer = false;
  std::optional<Reason> why_float;  ///< of every node that is not integer
  Quantizer x, w;                   ///< as found (any zero points; u8 or s8)
  bool bias_in_acc = false;  ///< bias is a coded s32 constant with scale == fl32(sx * sw[c]) bit for bit, zero point 0, and no
                             ///< overflow is possible

  /// What one unit of the accumulator of output channel c, of `channels`, stands for: fl32(sx * sw[c]), sx[c] where x is per
  /// channel.
  [[nodiscard]] float unit(std::int64_t c, std::int64_t channels) const;
};
[[nodiscard]] IntegerAnchor classify_anchor(const Graph& g, const Grids& grids, NodeId node);

}  // namespace octavo::ir
