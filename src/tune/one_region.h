// A plan of one region, cut out of a larger one, to be timed alone.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::tune {

/// A plan that runs `region` (of `plan`, tactic set, compiled to `artifact`) `copies` times on the same activations, each time with
/// constants of its own: between two runs of a layer a network reads other weights, while its activations have just been written.
/// Constants keep their bytes; arena buffers keep their kind, alignment and slack, bindings stay bindings.
[[nodiscard]] region::Plan one_region(const region::Region& region, const region::Plan& plan, const region::Artifact& artifact,
                                      int copies);

/// One way to run a region, with whose it is.
struct ProvidedTactic {
  region::Tactic tactic;
  const region::Provider* provider = nullptr;
};

/// A plan in which every region computes the same, each by another tactic, on the same activations and constants: to be timed region by
/// region.
struct EveryTactic {
  region::Plan plan;
  std::vector<std::size_t> candidates;  ///< by region of the plan; those that their provider cannot compile after all are left out
};
/// For a region of a device other than the host, all in that device's memory (what the caller passes too); a transfer keeps its two
/// memories. Providers compile on `threads` threads; code is not finished (region::Provider::finish).
[[nodiscard]] Result<EveryTactic> every_tactic(const region::Region& region, const region::Plan& plan,
                                               const std::vector<ProvidedTactic>& candidates, int threads);

/// Bytes of the constants that the region reads.
[[nodiscard]] std::size_t constant_bytes(const region::Region& region, const region::Plan& plan);

}  // namespace octavo::tune
