// A part of a large region, timed in its place: fewer images, or fewer rows of each image, of the same kernel.
#pragma once

#include <optional>

#include "region/region.h"

namespace octavo::tune {

struct Part {
  region::Region region;
  region::Plan plan;  ///< without regions; buffers of the arena are as small as the part needs
  double scale = 1;   ///< the whole takes so many times what the part takes
};

/// A part of the region that takes about `wanted` seconds if the whole takes `seconds`. Channels, windows, padding, layouts and distances
/// between rows stay; stages of one region lose what belongs together. Nothing where the whole is not at least twice as long, where too
/// few rows would remain to be representative, or where an operation needs all rows at once. Depends on nothing but its arguments.
[[nodiscard]] std::optional<Part> part_of(const region::Region& region, const region::Plan& plan, double seconds, double wanted);

}  // namespace octavo::tune
