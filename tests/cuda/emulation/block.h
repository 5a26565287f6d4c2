// A grid of blocks on the CPU: blocks one after the other, the threads of a block as fibers that give way at barriers and at what a
// warp does together.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/emulation/hooks.h"
#include "cuda/emulation/memory.h"

namespace octavo::testing {

struct Grid {
  std::array<int, 3> blocks{1, 1, 1}, threads{1, 1, 1};
  std::size_t dynamic_shared = 0;
};

/// A loaded kernel: its entry and what the library that it lies in says of itself.
struct HostKernel {
  void (*entry)() = nullptr;      ///< takes pointers only
  OctavoHooks** hooks = nullptr;  ///< where the library keeps its hooks
  std::byte *static_shared_begin = nullptr, *static_shared_end = nullptr;
  const std::byte *image_begin = nullptr, *image_end = nullptr;  ///< where the library is mapped
};

/// Runs all blocks, in an order that depends on `seed` alone. "" or the first thing that went wrong: who, where and what. One run at
/// a time.
[[nodiscard]] std::string run_grid(const HostKernel& kernel, const Grid& grid, const std::vector<void*>& parameters,
                                   GlobalMemory& memory, unsigned seed = 0);

}  // namespace octavo::testing
