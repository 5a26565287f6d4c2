// A detector's head of which a run computes what data keep, its inputs, and a comparison of results.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace octavo::testing {

constexpr std::int64_t kRoom = 300;  ///< boxes

/// Boxes that data keep; a product of matrices and a convolution for each; of those whose best class is good enough, the scores. As import writes it.
[[nodiscard]] ir::Graph head();

/// Numbers from -1 to 1 for every input.
[[nodiscard]] std::vector<ir::Tensor> feeds_of_any(const ir::Graph& g, std::uint64_t seed);
/// Likewise for `head`, of which `count` boxes are kept, as evenly as it goes.
[[nodiscard]] std::vector<ir::Tensor> feeds_of(const ir::Graph& g, std::int64_t count, std::uint64_t seed);

/// The largest difference, relative above 1; infinite where types or shapes differ.
[[nodiscard]] double difference(const std::vector<ir::Tensor>& a, const std::vector<ir::Tensor>& b);

}  // namespace octavo::testing
