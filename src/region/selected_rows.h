// Outputs with as many rows as a run selects. NonMaxSuppression's buffer has room for the most, and rows of -1 follow the selected ones; so it is with
// what other regions make of it row by row.
#pragma once

#include <cstddef>
#include <vector>

#include "region/region.h"

namespace octavo::region {

/// By output of the plan: it holds rows that non_max_suppression selected, as they are, cast, or with some of their columns.
[[nodiscard]] std::vector<char> selects_rows(const Plan& plan);
/// How many rows a run selected, from what it left in the memory of such an output (of the host, dense): at most its extent.
[[nodiscard]] std::int64_t selected_rows(const Binding& output, const void* data);

}  // namespace octavo::region
