// Code generation for one tile shape of a convolution phase.
#pragma once

#include <cstddef>

#include "cpu/jit/emitter.h"
#include "cpu/jit/tile_code.h"

namespace octavo::cpu::jit {

/// Emits a TileFn for tiles of this shape; returns its offset in the code. It reads x pixels at args.x + table[pixel][0], the
/// block's weights ([segment][quad][vector][16 channels][4 bytes]) and initial values, and runs the epilogue on every tile:
/// `epilogue`. `tiles`: how many a block has over a row tile, about; while they run, args.ahead is fetched.
std::size_t emit_conv_tile(Code& code, ConstantPool& pool, const CodeSetting& plan, const LoweredEpilogue& epilogue,
                           const CodePhase& phase, const Tile& tile, std::int64_t tiles);
/// The fewest tiles for which the code is the same as for `tiles`.
[[nodiscard]] std::int64_t fewest_conv_tiles(const CodePhase& phase, const Tile& tile, std::int64_t tiles);

}  // namespace octavo::cpu::jit
