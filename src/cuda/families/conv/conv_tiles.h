// What families of int8 convolutions share about their tiles: readable parameters, estimates of traffic, the order of candidates.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "cuda/families/conv/conv_shape.h"
#include "cuda/family.h"

namespace octavo::cuda {

/// How many parts of `of` cover `v`.
[[nodiscard]] constexpr std::int64_t parts(std::int64_t v, std::int64_t of) {
  return (v + of - 1) / of;
}
/// The parameter's text; "" without it.
[[nodiscard]] std::string value_of(const Parameters& parameters, const char* name);
/// One stage: an int8 convolution by constant weights, of one group, with a window larger than 1x1.
[[nodiscard]] bool is_windowed(const region::Region& region);
/// What kernels that keep a window's input tile in shared memory need of the shape; `most_steps`: products of 32 bytes that they unroll.
[[nodiscard]] Reasons why_not_windowed(const ConvShape& shape, std::int64_t most_steps);
/// Bytes of activations that the stage reads and stores; operands that are one element a channel do not count.
[[nodiscard]] double traffic_of(const region::Stage& stage);
/// The fastest first, but candidates that agree in the parameters `tile` with a faster one behind all others: a search that times the first few is to
/// see different tiles, and not one with more stages.
void put_in_order(std::vector<Candidate>& candidates, std::initializer_list<const char*> tile = {"tile"});

}  // namespace octavo::cuda
