// The CPU's providers cut down to the tactics of one instruction set, so that a test can run whole plans on each.
#pragma once

#include <string>

#include "region/provider.h"

namespace octavo::testing {

enum class Tier { portable, avx2, avx512, jit };
inline constexpr Tier kTiers[] = {Tier::portable, Tier::avx2, Tier::avx512, Tier::jit};
[[nodiscard]] std::string name_of(Tier tier);
/// Offers of `inner` that belong to the tier (jit: everything). Tactics without an instruction set in their name belong to all
/// tiers.
[[nodiscard]] const region::Provider& tier_provider(Tier tier);
/// False when this processor lacks the tier's instructions.
[[nodiscard]] bool available(Tier tier);

}  // namespace octavo::testing
