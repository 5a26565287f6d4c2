// Grouping: which nodes are computed together. A group is an anchor (or none) and the pointwise nodes behind it.
//
// Fusion fuse-epilogue:  f(anchor(x), y...) ==> one region; f pointwise: a view, relu, add, mul, sigmoid, ...
//   Why    the anchor's result is in registers: quantizing it, its activation and a residual addition there cost no memory traffic.
//   Exact  bit for bit: the epilogue is the same fp32 operations in the same order (docs/semantics.md, "Requantize").
//   Needs  f's shape is the region's, and its other operands are constants or are ready before the region starts. Whether other
//          nodes read the value in between does not matter: it is then stored as well.
//   Order  on the normalized graph, producers first; f joins the latest region that makes one of its operands.
//   Says   make_groups
//
// Fusion join-operand:  f(anchor(x), h(z)) ==> one region; h cheap: up to 4 casts, additions, subtractions and multiplications
//   Why    a region for a few numbers, such as the scale of one run, costs more than it computes: threads wait for each other, and its results move
//          between cores.
//   Exact  bit for bit: the same operations, once for each element that reads them.
//   Needs  f reads all results of h, and has at most 4096 elements; the anchor is a convolution or a product, or there is none.
//   Order  behind fuse-epilogue, which decides where f is.
//
// Placing strides:  slice(x), transpose(x), reshape(x), expand(x) ==> other strides on x's memory
//   Why    none of them is computed, and no byte moves.
//   Exact  bit for bit: elements keep their bits.
//   Needs  slices with positive steps; a reshape that strides can express on the layout of x (on channels-last images: one that
//          leaves the channels alone).
//   Order  after all rules and candidates, when memory is planned. No switch: what does not fit becomes a copy (see below).
//
// Placing codes-given:  dequantize(c) where c are u8 codes of the caller, or of dynamic_quantize ==> c
//   Why    a region reads an input that is bound as uint8 or int8 in the caller's memory, and the stored result of a
//          DynamicQuantizeLinear in place.
//   Exact  bit for bit: its readers take codes.
//   Needs  per tensor; every reader works on codes.
//   Order  when memory is planned. No switch.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/grid.h"
#include "region/region.h"

namespace octavo::plan {

struct Group {
  ir::NodeId anchor = ir::kNone;  ///< kNone: pointwise only
  std::vector<ir::NodeId> nodes;  ///< pointwise members, producers first (the anchor is not in the list)
  ir::Shape space;                ///< shape of the anchor's result and of every member; what joined as an operand broadcasts to it
};

struct Grouping {
  std::vector<Group> groups;                 ///< in execution order: a group reads only graph inputs, constants and earlier groups
  std::vector<int> of_node;                  ///< NodeId -> group, -1 for inputs, constants and alias nodes
  std::vector<int> depends;                  ///< ValueId -> latest group it needs, -1 for inputs and constants
  std::vector<std::optional<Reason>> notes;  ///< NodeId -> why it did not join its producer's group (nothing: it did, or had none)
};

/// transpose, reshape, slice with positive steps, expand and concat move no data by themselves: strides or slices do.
[[nodiscard]] bool is_alias(const ir::Node& node);
/// A dequantize of u8 codes that every reader takes as codes: it lies in memory as they want it, and costs nothing either.
[[nodiscard]] bool is_code_source(const ir::Graph& g, const ir::Node& node);
/// A cast to float32 of floats that were cast to an integer of 8 or 16 bits, as QuantizeLinear to 16 bits and DequantizeLinear are: programs
/// compute it from the floats.
[[nodiscard]] bool is_round_trip(const ir::Graph& g, const ir::Node& node);
/// A cast whose readers are all such: its result is in memory nowhere.
[[nodiscard]] bool is_passed(const ir::Graph& g, const ir::Node& node);
/// What a program that computes the node reads: its operands; of a round trip the floats before it.
[[nodiscard]] std::vector<ir::ValueId> read_values(const ir::Graph& g, const ir::Node& node);
/// Comparisons, logic and where: rounding their operands may change a result as a whole.
[[nodiscard]] bool is_choice(ir::Op op);
/// True if an epilogue program can compute this pointwise node: floats of up to 32 bits, what compares, selects or combines them (bool), codes.
[[nodiscard]] bool in_program(const ir::Graph& g, const ir::Node& node);

/// Greedy and always good: a pointwise node joins the latest group that directly produces one of its operands when the shapes agree
/// and its other operands are ready before that group starts.
/// Nodes in `apart` start a region of their own; the choice that wants it is named with each. So do those in `fills`: what is in front of them computes fewer elements.
[[nodiscard]] Grouping make_groups(const ir::Graph& g, const std::set<std::string, std::less<>>& disabled,
                                   const std::map<ir::NodeId, std::string>& apart = {},
                                   const std::optional<std::set<ir::NodeId>>& small = std::nullopt,
                                   const std::set<ir::NodeId>& fills = {});
/// Nodes with so few elements that it decides about the order of groups. `small` above: those of another shape of the model, so that orders are equal.
[[nodiscard]] std::set<ir::NodeId> small_nodes(const ir::Graph& g);

}  // namespace octavo::plan
