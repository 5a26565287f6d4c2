// Which rows of each stage of a chain a row tile computes: the geometry and the schedule of cpu.staged.row_tiles.
#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <vector>

#include "region/region.h"

namespace octavo::cpu::staged {

/// The vertical geometry of a window operator; of one row where there is none.
struct Vertical {
  std::int64_t in, out, kernel, stride, dilation, pad;
};
/// Of the stage's own anchor.
[[nodiscard]] Vertical vertical(const region::Stage& s);

/// Rows [begin, end) of a stage's result: which input rows it reads, and how much of its window is padding there.
struct Slab {
  std::int64_t rows, in_rows, top, bottom;
  auto operator<=>(const Slab&) const = default;
};
[[nodiscard]] std::int64_t first_input(const Vertical& v, std::int64_t begin);
[[nodiscard]] Slab slab_of(const Vertical& v, std::int64_t begin, std::int64_t end);

/// One stage in one row tile: for each but the last the rows of its result that scratch holds from `begin` on, and the ones among them
/// to compute; for the last stage the rows to store.
struct Rows {
  std::int64_t begin = 0, new_begin = 0, end = 0;
};
using RowTile = std::vector<Rows>;  ///< by stage
struct Schedule {
  std::vector<std::vector<RowTile>> tasks;  ///< of one image
  std::vector<std::int64_t> between_rows;   ///< the most that scratch holds behind each stage but the last
};
/// A function of the region's shapes and of the threads alone: the packed constants are listed by the heights of the row tiles, so the
/// row tiles are part of the engine file.
[[nodiscard]] Schedule schedule_of(const region::Region& r, int threads);

/// The different slabs of a stage.
[[nodiscard]] std::set<Slab> slabs_of(const region::Region& r, const Schedule& schedule, std::size_t stage);

}  // namespace octavo::cpu::staged
