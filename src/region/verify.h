// Verifying a plan that is another one but for its extents.
#pragma once

#include "base/result.h"
#include "region/region.h"

namespace octavo::region {

/// As `verify`; programs and facts that stages of `verified`, for which `verify` found nothing, have too are not checked again. Everything that depends on
/// extents is: addresses, shapes, memory.
[[nodiscard]] Status verify_resized(const Plan& plan, const Plan& verified);

}  // namespace octavo::region
