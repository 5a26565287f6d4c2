// The region key: a one-line spelling of everything that a region's time depends on, and of nothing else.
#pragma once

#include <string>

#include "region/region.h"

namespace octavo::region {

[[nodiscard]] std::string key(const Region& region, const Plan& plan);

}  // namespace octavo::region
