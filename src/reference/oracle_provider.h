// The reference as a provider: runs any region, one scalar at a time, straight from the contract in region/region.h.
// Selectable as device "reference"; the planner's tests run plans on it, so that they judge plans without any kernel.
#pragma once

#include "region/provider.h"

namespace octavo::reference {

/// Tactic "reference.region": never refused. Speed: none intended. Thread-safe; one task a region.
[[nodiscard]] const region::Provider& oracle_provider();

}  // namespace octavo::reference
