// Roundings inside regions: what a placement of Q/DQ demands between two operations that one region computes.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/quantizer.h"

namespace octavo::plan {

/// A view whose codes nothing stores: its value only goes on to further operations of its region, as an instruction of the epilogue
/// or a step of a table.
struct Rounding {
  ir::NodeId view = ir::kNone;
  std::string tensor;                ///< that the pair rounds
  ir::Quantizer quantizer;           ///< s8 or u8, as the normal form spells it
  std::set<std::string> onnx_nodes;  ///< the pair's
  std::string source;                ///< operation that makes the tensor: "conv"
  std::set<std::string> readers;     ///< what reads it rounded: operations, "mul", or "the pair a_Q, a_DQ"
  std::set<std::string> around;      ///< ONNX nodes of the region's other operations
};

/// In graph order. `graph` is normalized (quant/normal_form.h); `disabled` as in PlanOptions. A view whose codes reach a store
/// through operations that stay on its grid (relu, clip, min, max) is the rounding of that store and not listed. Cost: that of
/// grouping.
[[nodiscard]] std::vector<Rounding> find_roundings(const ir::Graph& graph, const std::set<std::string, std::less<>>& disabled);

/// The graph without these views, not normalized: whoever read a rounded value reads the value.
[[nodiscard]] ir::Graph without(const ir::Graph& graph, const std::vector<ir::NodeId>& views);

}  // namespace octavo::plan
