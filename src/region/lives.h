// When the buffers of a plan hold something.
#pragma once

#include <vector>

#include "region/region.h"

namespace octavo::region {

/// The regions during which a buffer holds something: from the first that touches it to the last. -1, -1: none does.
struct Life {
  int first = -1, last = -1;
};
/// Parallel to Plan::buffers. Buffers that a tactic keeps out of memory are touched by nobody.
[[nodiscard]] std::vector<Life> lives_of(const Plan& plan);

}  // namespace octavo::region
