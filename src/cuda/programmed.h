// Float results of 16 bits that no program stores (the planner's programs are of float32): the same region with a program that stores the result, which
// rounds it once, as the reference does. So families whose kernels end with a program compute such regions too.
#pragma once

#include <optional>

#include "region/region.h"

namespace octavo::cuda {

/// A region that is to be computed instead; nothing: the region as it is.
[[nodiscard]] std::optional<region::Region> programmed(const region::Region& region);

}  // namespace octavo::cuda
