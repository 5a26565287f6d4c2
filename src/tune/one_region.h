// A plan of one region, cut out of a larger one, to be timed alone.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::tune {

/// A plan that runs `region` (of `plan`, tactic set) `copies` times on the same activations, each time with constants of its own:
/// between two runs of a layer a network reads other weights, while its activations have just been written. Constants keep their
/// bytes; arena buffers keep their kind, alignment and slack, bindings stay bindings. Constants are packed by `provider`.
[[nodiscard]] Result<region::Plan> one_region(const region::Region& region, const region::Plan& plan,
                                              const region::Provider& provider, int copies);

/// Bytes of the constants that the region reads.
[[nodiscard]] std::size_t constant_bytes(const region::Region& region, const region::Plan& plan);

}  // namespace octavo::tune
