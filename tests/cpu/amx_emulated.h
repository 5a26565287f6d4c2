// Generated AMX convolutions on any processor with AVX-512 VNNI: the generator emits calls that do to a tile file in memory what
// the tile instructions do, and end the test program where those would raise an exception. Everything else is the code that runs
// natively.
#pragma once

#include <cstdint>

#include "cpu/jit/tiles.h"
#include "region/provider.h"

namespace octavo::testing {

/// Offers cpu.conv.u8s8.amx and cpu.conv_transpose.u8s8.amx, emulated.
const region::Provider& emulated_amx_provider();

/// What this thread's emulated instructions did since the last call.
struct TileCounts {
  std::int64_t loads = 0, split_rows = 0, dots = 0, configures = 0;
};
TileCounts take_tile_counts();

}  // namespace octavo::testing
