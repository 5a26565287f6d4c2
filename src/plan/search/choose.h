// Tactics: every provider is asked, every offer is kept for `explain`, the costs decide (plan/search/price.h).
#pragma once

#include <vector>

#include "base/result.h"
#include "plan/context.h"
#include "region/region.h"

namespace octavo::plan {

/// Chooses each region's tactic by `costs`, packs its constants into new constant buffers, fills Region::tactic, seconds, key and
/// alternatives, and empties raw constants that nothing reads any more.
[[nodiscard]] Status choose_tactics(region::Plan& plan, const PlanContext& context);

/// Tactics, packed constants and memory: afterwards the plan can run, and costs can compare it.
[[nodiscard]] Status finish(region::Plan& plan, const PlanContext& context);

}  // namespace octavo::plan
