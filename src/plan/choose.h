// Tactics: every provider is asked, every answer is kept for `explain`; the default choice is the first provider's cheapest offer.
#pragma once

#include <vector>

#include "base/result.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::plan {

/// Chooses tactics, packs their constants into new constant buffers and empties raw constants that nothing reads any more.
[[nodiscard]] Status choose_tactics(region::Plan& plan, const std::vector<const region::Provider*>& providers);

/// Merges a conv region and the max_pool region that alone reads its result into one region of two stages, when a provider takes
/// it.
/// ("fuse-conv-pool": exact, the stages are joined at the type and grid that the graph demands between them.)
void fuse_conv_pool(region::Plan& plan, const std::vector<const region::Provider*>& providers);

}  // namespace octavo::plan
