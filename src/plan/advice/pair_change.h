// Changes of Q/DQ pairs that advice is about: each made on a copy of the network.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "plan/advice/roundings.h"

namespace octavo::plan {

/// `drop`: the view goes. `share`: readers of the unrounded tensor read the view too. `move`: the view goes, and one on the same
/// grid comes behind the activation that read it, whose result a convolution or product reads in float for want of a pair. `add`: a
/// convolution or product that is float for want of them gets a view on its data and, unless it has one, on its constant weights.
struct PairChange {
  enum class Kind { drop, share, move, add } kind = Kind::drop;
  Rounding rounding;                 ///< drop, move: `view`; share: kind left_out; add: tensor, quantizer and onnx_nodes alone
  ir::ValueId behind = ir::kNone;    ///< move: the value that the view comes behind
  std::set<std::string> onnx_nodes;  ///< move: who reads that value in float now
  ir::NodeId node = ir::kNone;       ///< add: the convolution or product
  bool in_range = false;             ///< add: the tensor has a range, which gives the scale; otherwise the scale is made up
};

/// Every change of these kinds that the normalized graph allows, in graph order; `disabled` as in PlanOptions. A move needs an
/// activation between: operators of one operand (or of the tensor alone, as x * sigmoid(x)), read by nothing else, and a reader
/// with constant weights. Cost: that of grouping.
[[nodiscard]] std::vector<PairChange> find_pair_changes(const ir::Graph& graph, const std::set<std::string, std::less<>>& disabled);

/// A pair for every float convolution or product of float32 data and constant weights. `ranges`: as PlanOptions::ranges.
[[nodiscard]] std::vector<PairChange> find_added_pairs(const ir::Graph& graph, const ir::Ranges& ranges);

/// The graph with the changes made, in their order, not normalized.
[[nodiscard]] ir::Graph changed(const ir::Graph& graph, const std::vector<const PairChange*>& changes);

}  // namespace octavo::plan
