// Artifacts inside plans: what Provider::compile made becomes constant buffers and fields of the region.
#pragma once

#include "region/provider.h"

namespace octavo::region {

/// Adds the artifact's constants to the plan, in the memory of the region's device, and its code, in host memory; fills Region::packed,
/// code, launch and required. Region::tactic is the one that was compiled.
void keep_artifact(Artifact made, Region& region, Plan& plan);

/// Raw weights that every reader has packed for itself leave the plan: they have no bytes then.
void drop_packed_weights(Plan& plan);

}  // namespace octavo::region
