// What regions say of the codes of constant weights (region::WeightCodes): their spelling in keys, and what kernels rely on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "region/region.h"

namespace octavo::region {

/// "codes[4,32,1]": bits, channels that share a scale, 1 if all have one zero point.
[[nodiscard]] std::string spelled(const WeightCodes& codes);
/// Reads what `spelled` gives; nullopt for anything else.
[[nodiscard]] std::optional<WeightCodes> parse_weight_codes(std::string_view text);
/// Of an anchor that has them: are they codes of weights that there are? Kernels unpack without looking.
[[nodiscard]] Status check_weight_codes(const Anchor& a);

}  // namespace octavo::region
