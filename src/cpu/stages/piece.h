// One stage of a region over some rows as a region of its own, and the regions that can be cut so.
#pragma once

#include <string>

#include "cpu/family.h"
#include "cpu/stages/schedule.h"

namespace octavo::cpu::staged {

inline constexpr std::size_t kMostStages = 8;
inline constexpr std::size_t kSlack = 64;  ///< readable and writable bytes around an arena buffer

/// What a later stage reads, as scratch holds it: channels last, the rows of one image. Its buffer is none of the plan's.
[[nodiscard]] region::TensorRef between_of(const Region& r, region::StoreId id);

/// A region of one stage, `slab` high, whose tensors are buffers 0, 1, ... in the order inputs, operands, stores, weights.
struct Piece {
  Region region;
  Plan plan;
};
[[nodiscard]] Piece piece_of(const Region& whole, const Plan& plan, std::size_t stage, const Slab& slab);

/// Why the region cannot be computed by row tiles, whatever kernels there are; empty: it can.
[[nodiscard]] Reasons why_no_row_tiles(const Region& r);

}  // namespace octavo::cpu::staged
