// Whole runs of two plans in turn: what confirms every choice that times of single regions made. Beside each other regions share
// caches, and small gains vanish in what a measurement cannot tell apart.
#pragma once

#include <optional>

#include "base/result.h"
#include "plan/context.h"
#include "plan/search/margins.h"
#include "region/region.h"

namespace octavo::plan {

struct WholeRuns {
  double base = 0, other = 0;  ///< seconds
  /// `other` is faster, or slower, by more than the margin (plan/search/margins.h).
  [[nodiscard]] bool faster() const { return other < kWhole * base; }
  [[nodiscard]] bool slower() const { return other > kSlower * base; }
  /// Whose gain is larger, as a part of the base that it was measured against?
  [[nodiscard]] bool better_than(const WholeRuns& than) const { return other * than.base < than.other * base; }
};

/// Both plans must be finished (plan/search/choose.h). Nothing where the costs cannot run plans; then nothing contradicts the sums of
/// regions. The costs remember the times. Errors: a miss in strict mode.
[[nodiscard]] Result<std::optional<WholeRuns>> run_in_turn(const region::Plan& base, const region::Plan& other,
                                                           const PlanContext& context);

/// The decision goes back to candidate `to`, because the whole plan was not faster.
void take_back(region::Decision& decision, std::size_t to, const WholeRuns& times);

}  // namespace octavo::plan
