// Where float16 is allowed and nobody gave ranges: which tensors come near its end on one random input. That is no proof for other data, and finds what would
// be infinite on every input.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "plan/options.h"

namespace octavo::plan {

/// Inputs for the reference: floats uniform in [-1, 1), any 8-bit codes, 0 for indices, masks and 16-bit floats.
[[nodiscard]] std::vector<ir::Tensor> random_feeds(const ir::Graph& g, std::mt19937_64& random);

/// What one evaluation of a float32 model found.
struct SampledMagnitudes {
  enum class Found : std::uint8_t {
    values,    ///< `large` is complete
    too_long,  ///< nothing was evaluated: the reference would take too long
    failed,    ///< the reference cannot evaluate the model on such an input: `error`
  };
  Found found = Found::values;
  double seconds = 0;  ///< what the reference was expected to take
  std::string error;
  std::map<std::string, double> large;  ///< largest finite magnitude, from half of the end of float16 on, by the tensor's name
};

/// The most seconds that the reference may be expected to take.
inline constexpr double kMostEvaluation = 5;

/// Null: float16 is not allowed, the model has 16-bit tensors of its own, or every float layer has ranges or pairs. `g`: as imported. Tensors that depend on
/// integer inputs and constants alone, as masks, are left out: such an input is 0. The same graph gives the same result. Errors: the caller has cancelled.
[[nodiscard]] Result<std::shared_ptr<const SampledMagnitudes>> magnitudes_of(const ir::Graph& g, const PlanOptions& options);

}  // namespace octavo::plan
