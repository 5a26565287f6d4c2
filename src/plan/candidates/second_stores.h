// Results that are stored at several places, where no kernel of a device stores more than once.
//
// Placement gives a region a store for every place where its result is wanted. Whether kernels can do that is for the device's providers to say: where each of them refuses
// the region, and one takes it with a single store of each result, the other places are filled by copies behind it.
#pragma once

#include <vector>

#include "region/provider.h"
#include "region/region.h"

namespace octavo::plan {

/// For regions of other devices than the host, whose reference evaluator takes any. The copies say why they are there.
void copy_second_stores(region::Plan& plan, const std::vector<const region::Provider*>& providers);

}  // namespace octavo::plan
