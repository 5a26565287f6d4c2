// What a placement of Q/DQ demands beyond types of regions: roundings between two operations that one region computes, and float32
// values read where a pair would give codes that are stored anyway.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ir/quantizer.h"

namespace octavo::plan {

/// `inside`: a view whose codes nothing stores: its value only goes on to further operations of its region, as an instruction of
/// the epilogue or a step of a table. `left_out`: codes of a tensor are stored for some readers, and others read the tensor itself
/// in another region, so it is stored in float32 beside them; a rounding that a range would permit there, and no pair demands.
struct Rounding {
  enum class Kind { inside, left_out } kind = Kind::inside;
  ir::NodeId view = ir::kNone;       ///< left_out: the one whose codes are stored
  std::string tensor;                ///< that the pair rounds
  ir::Quantizer quantizer;           ///< s8 or u8, as the normal form spells it
  std::set<std::string> onnx_nodes;  ///< the pair's; left_out: those that read the tensor unrounded
  std::set<std::string> pair;        ///< left_out: the pair's
  std::string source;                ///< operation that makes the tensor: "conv"
  std::set<std::string> readers;     ///< what reads it rounded (left_out: unrounded): operations, "mul", or "the pair a_Q, a_DQ"
  std::set<std::string> around;      ///< ONNX nodes of the region's other operations (left_out: of the first reader's region)
  std::vector<std::pair<ir::NodeId, int>> edges;  ///< left_out: inputs that read it unrounded
};

/// Of both kinds, in graph order. `graph` is normalized (quant/normal_form.h); `disabled` as in PlanOptions. A view whose codes
/// reach a store through operations that stay on its grid (relu, clip, min, max) is the rounding of that store and not listed.
/// Results of the network are float32 in any case and not listed either. Cost: that of grouping.
/// `in_front`: where that is possible linear layers compute what follows moves of their results (plan/candidates/above_moves.h), and store no floats for it.
[[nodiscard]] std::vector<Rounding> find_roundings(const ir::Graph& graph, const std::set<std::string, std::less<>>& disabled,
                                                   bool in_front = false);

/// The graph with each of these roundings changed, not normalized. `inside`: readers of the rounded value read the value;
/// `left_out`: readers of the value read the rounded value.
[[nodiscard]] ir::Graph otherwise(const ir::Graph& graph, const std::vector<const Rounding*>& roundings);

}  // namespace octavo::plan
