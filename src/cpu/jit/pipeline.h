// Short reductions: while one tile's epilogue runs, the next tile's dots run between its instructions, in a second set of
// accumulators. The out-of-order window alone does not reach that far (docs/lab/kernels.md).
#pragma once

#include <functional>
#include <vector>

#include "cpu/jit/emitter.h"

namespace octavo::cpu::jit {

/// A short run of instructions.
using Unit = std::function<void()>;
/// The whole reduction of a tile, from the pixel addresses on. `ahead`: bytes from rsi to the tile's table entries. May use
/// r8..r14, the tile's accumulators, and the `reserved` zmm after both sets of accumulators.
using UnitsOf = std::function<std::vector<Unit>(const Tile& tile, int ahead)>;

/// The loop over args.tiles tiles of this shape; advances the table. tile.first is 0.
void emit_pipeline(Code& code, Emitter& emitter, const Tile& tile, int columns, int reserved, const UnitsOf& units);

/// The epilogue of a tile whose accumulators go to the stack first, behind emitter.stack_bytes(), so that every register is free.
void emit_stored(Code& code, Emitter& emitter, const Tile& tile);

/// A whole function: the sums of a tile, then its epilogue, args.tiles times; advances the table. Returns where in the code it begins.
std::size_t emit_tile_loop(Code& code, Emitter& emitter, const Tile& tile, int columns, const Unit& sums);

/// Accumulators to their initial values: those at [rdi + init], or zero. Clobbers `scratch`.
void start_accumulators(Code& code, const Tile& tile, bool has_init, const Xbyak::Reg64& scratch);

}  // namespace octavo::cpu::jit
