// Arena layout: buffers that are never alive together share bytes, and so do a result and the operand whose place it takes
// (region/in_place.h).
#pragma once

#include "region/region.h"

namespace octavo::plan {

/// Sets Buffer::arena_offset and DeviceUse::arena_bytes: one arena a memory space. Largest first, lowest offset that fits between the lifetimes it meets.
/// Each buffer is 64-byte aligned with 64 bytes of slack on both sides.
void plan_memory(region::Plan& plan);

}  // namespace octavo::plan
