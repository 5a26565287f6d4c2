// The cost model of a processor: the constants of the machine that the estimates of all families share. A family keeps what describes its
// kernel: how many elements, clocks of its loop an element, bytes that it packs.
//
// Estimates are of the standard machine (base/machine.h has its caches and clock), so that a plan for which nothing was measured is the
// same everywhere. They order the tactics of the CPU until times are measured: a constant that is off by a factor costs time at effort 0 alone.
// Each is rounded from measurements of whole kernels (docs/lab/kernels.md).
#pragma once

#include "base/machine.h"
#include "cpu/isa.h"

namespace octavo::cpu {

/// Seconds of a clock of block code and gathers, which take an eighth more clocks than their instructions would.
inline constexpr double kSecondsPerCycle = 1.125 / standard_machine().clock_hz;

/// How much slower than with AVX-512 block code runs.
[[nodiscard]] constexpr double slowdown(Isa isa) {
  return isa >= Isa::avx512 ? 1.0 : isa == Isa::avx2 ? 1.7 : 8.0;
}

/// Multiplications of 8-bit codes a clock and core in loops over packed matrices, with what packing and sums take of them. AMX alone could do
/// 1024: 16 x 16 x 64 in 16 clocks (cpu/jit/amx_plan.h).
[[nodiscard]] constexpr double code_products_a_clock(Isa isa) {
  return isa >= Isa::amx ? 400 : isa >= Isa::avx512vnni ? 70 : isa >= Isa::avx2 ? 20 : 1;
}
/// The same for bfloat16, on the tiles of AMX (which alone could do 512) and in registers.
inline constexpr double kBf16ProductsAClockOnTiles = 200, kBf16ProductsAClock = 36;

/// Bytes a clock from the second-level cache of a core and beyond, while it computes.
inline constexpr double kBytesAClock = 16;
/// Bytes a clock that another core has modified: they come line by line.
inline constexpr double kForeignBytesAClock = 3;

/// Seconds for handing a region to the workers and waiting for all of them.
inline constexpr double kStart = 1e-6;

}  // namespace octavo::cpu
