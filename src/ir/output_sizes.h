// Outputs whose sizes data decide (ir::OutputSize): they have room for the most, and the last outputs say how many elements there are. Callers see the outputs
// without these.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace octavo::ir {

/// How many of so many outputs are results of the model: the first ones.
[[nodiscard]] std::size_t shown_outputs(std::size_t outputs, std::span<const OutputSize> sizes);
/// The shape of output `output`, whose room is `shape`, when the outputs from `shown` on hold `counts`: at most the room.
[[nodiscard]] Shape shape_after(Shape shape, std::size_t output, std::span<const OutputSize> sizes, std::size_t shown,
                                std::span<const std::int64_t> counts);
/// The dense elements of `room`, of which `shape` is filled, moved together at the front.
void move_together(std::byte* data, std::size_t element_bytes, const Shape& room, const Shape& shape);
/// Results of a run, one an output, become those of the model: in their shapes, without the counts.
void cut_results(std::vector<Tensor>& results, std::span<const OutputSize> sizes);

}  // namespace octavo::ir
