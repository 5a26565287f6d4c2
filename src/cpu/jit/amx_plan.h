// What AMX asks of a convolution's geometry. Measured on a 4 GHz Emerald Rapids core (docs/lab/kernels.md): a product of two tiles
// takes as many clocks as the pixel tile has rows (9 at least), whatever the depth; a load 8 clocks from L1, 21 from L2 and 54 if
// its rows cross cache lines.
#pragma once

#include "cpu/jit/conv_plan.h"

namespace octavo::cpu::jit {

/// How the phase's pixels are read: in place where every row of a tile lies within a cache line, else from a strip in scratch. Sets
/// copies, joined, together, pitch, pixel_step, row_step, segments, segment_bytes, depth, steps and quads. Empty, or the refusal.
/// `padded`: the taps reach outside the input. `pixel`: bytes between input pixels.
[[nodiscard]] Reasons arrange_tiles(const region::TensorRef& x, const ConvSetting& plan, bool padded, std::int64_t pixel,
                                    Phase& phase);

/// The tiles of a row tile: `repeat` runs of `big_count` tiles of two blocks of `rows` pixels, each run followed by one tile of `tail`
/// pixels (0: none), whose last block begins `skip` pixels early so that it has as many rows as the others.
struct TileRuns {
  int rows = 16, tail = 0, skip = 0;
  std::int64_t repeat = 1, big_count = 0;
};
[[nodiscard]] TileRuns tile_runs(const Phase& phase, std::int64_t row_tile_pixels);

/// Estimated clocks of the phase, all images.
[[nodiscard]] double tile_clocks(const ConvSetting& plan, const Phase& phase);

}  // namespace octavo::cpu::jit
