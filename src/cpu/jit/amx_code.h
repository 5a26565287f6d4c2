// Code generation for one tile shape of a convolution phase on AMX.
#pragma once

#include <cstddef>

#include "cpu/jit/conv_plan.h"
#include "cpu/jit/emitter.h"
#include "cpu/jit/tiles.h"

namespace octavo::cpu::jit {

/// Emits a TileFn for tiles of this shape; returns its offset in the code. A tile is one or two blocks of Tile::rows pixels, those
/// of a block Phase::pixel_bytes() apart; where the last one has fewer, its sums begin Tile::skip pixels early. The caller has
/// configured TileConfig::of(rows, depth). While a tile's epilogue reads its sums from one of two buffers on the stack, the next
/// tile's products go to the other. `count`: tiles that a block has over a row tile, about; while they run, args.ahead is fetched.
std::size_t emit_amx_tile(Code& code, ConstantPool& pool, const ConvSetting& plan, const Epilogue& epilogue, const Phase& phase,
                          const Tile& tile, const Tiles& tiles, std::int64_t count, bool vbmi);

}  // namespace octavo::cpu::jit
