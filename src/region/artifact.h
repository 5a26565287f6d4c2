// Artifacts inside plans: what Provider::compile made becomes constant buffers and fields of the region.
#pragma once

#include <cstdint>
#include <string_view>

#include "region/provider.h"

namespace octavo::region {

/// What becomes of packed constants with the same bytes: `once` in a plan that is kept, so that one copy stays in cache and in the file; `apart` where
/// copies of a region are timed with constants of their own, which caches do not hold from one to the next.
enum class Equals : std::uint8_t { once, apart };
/// Adds the artifact's constants to the plan, in the memory of the region's device, and its code or source, in host memory; fills Region::packed, code,
/// launch and required. Region::tactic is the one that was compiled.
void keep_artifact(Artifact made, Region& region, Plan& plan, Equals equals = Equals::once);

/// Adds the source to the plan for Region::code; -1: it is empty.
[[nodiscard]] BufferId keep_source(const Source& source, const Region& region, Plan& plan);
/// The region's machine code, in the place of the source that it was made of.
void keep_code(std::string_view code, const Region& region, Plan& plan);
/// Error: `internal`, the region whose source nobody has compiled.
[[nodiscard]] Status check_compiled(const Plan& plan);

/// Raw weights that every reader has packed for itself leave the plan: they have no bytes then.
void drop_packed_weights(Plan& plan);

}  // namespace octavo::region
