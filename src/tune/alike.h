// Which regions have the same best kernels, as far as that can be known without timing them.
#pragma once

#include <string>

#include "region/region.h"

namespace octavo::tune {

/// Convolutions and linear layers of one kind differ in their programs, constants and addresses, and in their input channels by less than a factor of 1.5:
/// what is fastest for one of them is fast for the others. Empty: nothing is known to be like the region.
[[nodiscard]] std::string kind_of(const region::Region& region);

}  // namespace octavo::tune
