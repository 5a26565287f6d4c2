// What permitted views cost in accuracy.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "ir/graph.h"

namespace octavo::plan {

/// The largest error of an output of `with_views` against `without`, relative to the largest magnitude of that output: both run in
/// the reference on the same `samples` seeded inputs (uniform in -1..1), so it is an estimate for such inputs, and a bound for no
/// other. The graphs have the same inputs and outputs; float outputs count, an error of NaN is infinite. Seconds for a small
/// network, minutes for a large one. Errors: `internal` when inputs or outputs do not match; those of the reference.
[[nodiscard]] Result<double> estimated_error(const ir::Graph& without, const ir::Graph& with_views, std::uint64_t seed = 1,
                                             int samples = 1);

}  // namespace octavo::plan
