// Outputs whose sizes data decide (ir::OutputSize): they have room for the most, and the last outputs say how many elements there are. Callers see the outputs
// without these.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"

namespace octavo::ir {

/// A bound that somebody gave is an entry of the list whose `output` is kNoOutput: a run in which output `count` is not among 0 to the bound, which is its `axis`, has no
/// results. The name of that output is what the bound was given for.
inline constexpr int kNoOutput = -1;
[[nodiscard]] inline OutputSize bound_of(int count, std::int64_t most) {
  return {kNoOutput, static_cast<int>(most), count};
}
[[nodiscard]] inline bool is_bound(const OutputSize& s) {
  return s.output == kNoOutput;
}

/// A node may say, in the attribute `counted`, how much of an operand it reads where its result counts: one number a place, -1 for all of it. The numbers are those of
/// the list's entries whose `output` is kCounter: number `axis` is the value of output `count`. What they are of: gather and gather_elements: the indexed dimension; gather_nd:
/// each dimension that a tuple indexes; concat: each operand, along its axis; scatter: each dimension of the updates; non_max_suppression: the boxes.
inline constexpr int kCounter = -2;
inline constexpr const char* kCounted = "counted";
[[nodiscard]] inline OutputSize counter_of(int number, int count) {
  return {kCounter, number, count};
}
[[nodiscard]] inline bool is_counter(const OutputSize& s) {
  return s.output == kCounter;
}
/// The nodes that compute the counts of the list, in its order.
[[nodiscard]] std::vector<NodeId> count_nodes(const Graph& g);
/// Without the counters that say whether a step or a branch happens (1 or 0), and the outputs that only these need: for devices that compute all steps and branches.
void drop_conditions(Graph& g);

/// How many of so many outputs are results of the model: the first ones.
[[nodiscard]] std::size_t shown_outputs(std::size_t outputs, std::span<const OutputSize> sizes);
/// The shape of output `output`, whose room is `shape`, when the outputs from `shown` on hold `counts`: at most the room.
[[nodiscard]] Shape shape_after(Shape shape, std::size_t output, std::span<const OutputSize> sizes, std::size_t shown,
                                std::span<const std::int64_t> counts);
/// The dense elements of `room`, of which `shape` is filled, moved together at the front.
void move_together(std::byte* data, std::size_t element_bytes, const Shape& room, const Shape& shape);
/// Do the counts of a run keep the bounds that were given? bad_input, with tensor, size and bound, if not. `name_of(i)`: the name of output i.
[[nodiscard]] Status within_bounds(std::span<const OutputSize> sizes, std::size_t shown, std::span<const std::int64_t> counts,
                                   const std::function<const std::string&(std::size_t)>& name_of);
/// Results of a run, one an output, become those of the model: in their shapes, without the counts.
void cut_results(std::vector<Tensor>& results, std::span<const OutputSize> sizes);

}  // namespace octavo::ir
