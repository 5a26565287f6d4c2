// Code generation for one tile shape of a convolution phase on AMX.
#pragma once

#include <cstddef>

#include "cpu/avx512/conv_plan.h"
#include "cpu/avx512/emitter.h"
#include "cpu/avx512/tiles.h"

namespace octavo::cpu::avx512 {

/// Emits a TileFn for tiles of this shape (Tile::rows is not 0); returns its offset in the code. Blocks of `rows` consecutive
/// entries of the pixel table are pixels Phase::pixel_bytes() apart. The caller has configured TileConfig::of(rows, depth). While a
/// tile's epilogue reads its sums from one of two buffers on the stack, the next tile's products go to the other.
std::size_t emit_amx_tile(Code& code, ConstantPool& pool, const ConvPlan& plan, const Epilogue& epilogue, const Phase& phase,
                          const Tile& tile, const Tiles& tiles, bool vbmi);

}  // namespace octavo::cpu::avx512
