// Copies between the memories of devices:  regions that run where Region::device says  ==>  the same, reading and storing in the memory
// of their device, with transfers between them.
//   Why    a region reads and stores in its own device's memory alone; what another device made, or the caller gave, must get there.
//   Exact  a transfer copies a buffer byte by byte.
//   Needs  Region::device set, tactics not compiled (their constants go to the device), buffers without arena offsets.
#pragma once

#include "region/region.h"

namespace octavo::plan {

/// Gives every buffer a memory space, adds a buffer for each further space that it is needed in, and inserts the transfers: before the
/// first region that reads or completes what is elsewhere, and behind the last one for outputs. Bindings are in host memory; two
/// devices exchange through it. Without regions on other devices nothing changes.
void add_transfers(region::Plan& plan);

}  // namespace octavo::plan
