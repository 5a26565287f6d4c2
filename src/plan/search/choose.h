// Tactics: every provider is asked, every answer is kept for `explain`, the costs decide (plan/search/price.h).
#pragma once

#include <vector>

#include "base/result.h"
#include "plan/search/cost.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::plan {

/// Chooses each region's tactic by `costs`, packs its constants into new constant buffers, fills Region::tactic, seconds, key and
/// alternatives, and empties raw constants that nothing reads any more.
[[nodiscard]] Status choose_tactics(region::Plan& plan, const std::vector<const region::Provider*>& providers, Costs& costs);

}  // namespace octavo::plan
