// A region from its key alone, to time tactics without the model.
#pragma once

#include <string_view>

#include "base/result.h"
#include "region/region.h"

namespace octavo::region {

/// A plan of the one region that the key spells, without tactic: key() of it is `key` again. What keys do not hold is made up:
/// weights and tables are seeded, scales 1, activations u8 codes with zero point 128; clamps are 0 and 255; every tensor is a
/// buffer of its own, but for what stages forward and for the one input of independent stages. Never trusts its input.
/// Errors: bad_input naming the part that does not parse; unsupported for what a key does not tell enough of, saying what, and for
/// more than 8 GiB of tensors.
[[nodiscard]] Result<Plan> plan_from_key(std::string_view key, int threads);

/// Values for a constant whose own are not at hand: floats within -1 and 1 and not subnormal (those would be slow), other integers
/// of all values, indices (s64) 0. Always the same.
[[nodiscard]] ir::Tensor seeded_constant(ir::DType type, std::int64_t bytes);

}  // namespace octavo::region
