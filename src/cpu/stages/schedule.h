// Which rows of each stage a row tile computes: the geometry and the schedule of cpu.staged.
//
// A row tile is a range of rows of the last stage's result. Going backwards through the stages, each computes the rows that its
// readers need in the tile and that no earlier tile of the task has computed, and its share of the rows of results that leave the
// region. Rows that later tiles read again stay in scratch. Tasks divide the rows of every result that leaves; what a task computes
// beyond its share, because a window of a later stage reaches there, is stored nowhere but in scratch.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <set>
#include <vector>

#include "region/family.h"
#include "region/region.h"
#include "region/stage_graph.h"

namespace octavo::cpu::staged {

/// The vertical geometry of a window operator; of one row where there is none.
struct Vertical {
  std::int64_t in, out, kernel, stride, dilation, pad;
};
/// Of the stage's own anchor.
[[nodiscard]] Vertical vertical(const region::Stage& s);

/// Rows of a stage's result: which input rows they read, and how much of their windows is padding there.
struct Slab {
  std::int64_t rows, in_rows, top, bottom;
  auto operator<=>(const Slab&) const = default;
};
[[nodiscard]] std::int64_t first_input(const Vertical& v, std::int64_t begin);
[[nodiscard]] Slab slab_of(const Vertical& v, std::int64_t begin, std::int64_t end);

/// One run of a stage's kernel: rows [begin, end) of its result.
struct Call {
  std::int64_t begin = 0, end = 0;
  bool owned = true;  ///< results that leave are stored; otherwise other tasks store these rows
};
/// One stage in one row tile.
struct Rows {
  std::int64_t begin = 0;                   ///< the first row that scratch holds
  std::int64_t new_begin = 0, end = 0;      ///< the rows to compute
  std::int64_t own_begin = 0, own_end = 0;  ///< the task's share of what leaves
  /// Empty ones have begin == end.
  [[nodiscard]] std::array<Call, 3> calls() const;
};
using Tile = std::vector<Rows>;  ///< by stage
struct Schedule {
  std::vector<std::vector<Tile>> tasks;  ///< of one image
  std::vector<std::int64_t> held_rows;   ///< by stage: the most that scratch holds; 0: no later stage reads it
  std::vector<std::int64_t> alone_rows;  ///< by stage: the most rows of a call that is not owned
};

inline constexpr region::ParameterRow kTile{"tile", "1..1048576", "KiB of rows between stages that a row tile has"};
/// A function of the region's shapes, the tactic's parameters and the threads alone: the packed constants are listed by the heights
/// of the tiles, so the tiles are part of the engine file.
[[nodiscard]] Schedule schedule_of(const region::Region& r, const region::Parameters& parameters, int threads);

/// The different slabs of a stage.
[[nodiscard]] std::set<Slab> slabs_of(const region::Region& r, const Schedule& schedule, std::size_t stage);

}  // namespace octavo::cpu::staged
