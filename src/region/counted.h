// Regions whose first elements alone matter, and data decide how many (Region::count): the same region over fewer of them. An engine makes kernels for
// a few extents and runs the least one that has room for the count; what lies behind it in memory is not written, and nothing reads it.
// Where no stage names a dimension, the region is one element: a run computes all of it, or nothing where the count is 0.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "region/provider.h"
#include "region/region.h"

namespace octavo::region {

/// Is it computed as a whole, or not at all?
[[nodiscard]] bool all_or_nothing(const Region& r);
/// Does the region search a list, of which an operand says how many elements there are? It has a result even where there are none: it always runs.
[[nodiscard]] bool searches_counted(const Region& r);
/// The most elements of the counted dimension.
[[nodiscard]] std::int64_t room_of(const Region& r);
/// How many of them this run has, by the count that lies in memory: 0 to room_of.
[[nodiscard]] std::int64_t counted_extent(const Region& r, const Memory& memory);
/// The name of its count: of an output of the plan.
[[nodiscard]] const std::string& count_of(const Region& r, const Plan& plan);
/// The extents less than the room that kernels are made for, rising: two for each power of 2.
[[nodiscard]] std::vector<std::int64_t> counted_extents(std::int64_t room);

/// Which dimension of each stage's space has the counted elements, where `results`, parallel to results_of, says which one it is of the results. Nothing: a
/// stage needs all elements of what it reads, or they lie elsewhere than in front of all others.
[[nodiscard]] std::optional<std::vector<int>> counted_dims(const Region& r, const std::vector<std::size_t>& results);
/// The region over the first `extent` elements. Nothing: an operator of it computes other results then, or is none that the rule knows.
[[nodiscard]] std::optional<Region> clipped(const Region& r, std::int64_t extent);

}  // namespace octavo::region
