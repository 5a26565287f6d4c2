// Code generation for one tile shape of a convolution phase on AMX.
#pragma once

#include <cstddef>

#include "cpu/jit/emitter.h"
#include "cpu/jit/tile_code.h"
#include "cpu/jit/tiles.h"

namespace octavo::cpu::jit {

/// Emits a TileFn for tiles of this shape; returns its offset in the code. A tile is one or two blocks of Tile::rows pixels, those
/// of a block CodePhase::pixel_bytes apart; where the last one has fewer, its sums begin Tile::skip pixels early. The caller has
/// configured TileConfig::of(rows, depth). While a tile's epilogue reads its sums from one of two buffers on the stack, the next
/// tile's products go to the other. `count`: tiles that a block has over a row tile, about; while they run, args.ahead is fetched.
std::size_t emit_amx_tile(Code& code, ConstantPool& pool, const CodeSetting& plan, const LoweredEpilogue& epilogue,
                          const CodePhase& phase, const Tile& tile, const Tiles& tiles, std::int64_t count);
/// The fewest tiles for which the code is the same as for `count`.
[[nodiscard]] std::int64_t fewest_amx_tiles(const CodePhase& phase, const Tile& tile, std::int64_t count);
/// Packed weights of a region up to this size are left to the caches.
inline constexpr std::int64_t kNearBytes = 128 << 10;

}  // namespace octavo::cpu::jit
