// Input data for tests: seeded, with the values that break quantized code.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace octavo::testing {

/// One tensor a graph input. Floats: multiples of the graph's scales that lie exactly on rounding ties, values beyond every range,
/// both zeros, and ordinary numbers; never NaN or infinity. 8-bit codes: a quarter are 0, 255, -128, 127. Other integers: 0 or 1
/// (valid indices).
[[nodiscard]] std::vector<ir::Tensor> seeded_feeds(const ir::Graph& g, std::uint64_t seed);

/// "" if the tensors have equal types and bits (any NaN equals any NaN), otherwise the first difference: "output 1, element 3: 0.5
/// and 0.25".
[[nodiscard]] std::string first_difference(const std::vector<ir::Tensor>& a, const std::vector<ir::Tensor>& b);

}  // namespace octavo::testing
