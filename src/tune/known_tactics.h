// Which tactics there are for a region key, so that people can name one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "region/provider.h"
#include "tune/timing_cache.h"

namespace octavo::tune {

/// Has the regions of a plan for the host run on `device` (DeviceUse::name); "host": as they are.
void put_on(std::string_view device, region::Plan& plan);

/// What the providers answer for the region that the key spells, each on its own device, further sets of parameters included. Errors:
/// those of region::plan_from_key.
[[nodiscard]] Result<std::vector<region::Offer>> offers_for(const std::string& key, int threads,
                                                            const std::vector<const region::Provider*>& providers);

/// The one tactic that a person means by `wanted` for the key: among those with a time in the cache, else among offers_for. What
/// `wanted` leaves out of the parameters may be anything. Errors: `usage` when it is not a spelling, means none that can run the region
/// here (the message says why, and names those that can), or means several (the message names them).
[[nodiscard]] Result<std::string> find_tactic(std::string_view wanted, const TimingCache& cache, const Where& where,
                                              const std::string& key, const std::vector<const region::Provider*>& providers);

}  // namespace octavo::tune
