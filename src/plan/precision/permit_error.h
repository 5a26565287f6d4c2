// What permitted views cost in accuracy.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"

namespace octavo::plan {

/// The largest error of an output of `with_views` against `without`, relative to the largest magnitude of that output: both run in
/// the reference on the same `samples` seeded inputs (uniform in -1..1), so it is an estimate for such inputs, and a bound for no
/// other. The graphs have the same inputs and outputs; float outputs count, an error of NaN is infinite. Seconds for a small
/// network, minutes for a large one. Errors: `internal` when inputs or outputs do not match; those of the reference.
[[nodiscard]] Result<double> estimated_error(const ir::Graph& without, const ir::Graph& with_views, std::uint64_t seed = 1,
                                             int samples = 1);

/// The same against one network many times: it is evaluated once.
class ErrorMeter {
 public:
  /// Cost: one evaluation a sample.
  [[nodiscard]] static Result<ErrorMeter> of(ir::Graph without, std::uint64_t seed = 1, int samples = 1);
  [[nodiscard]] Result<double> error(const ir::Graph& with_views) const;

 private:
  ir::Graph without_;
  std::vector<std::vector<ir::Tensor>> feeds_, exact_;  // by sample
};

}  // namespace octavo::plan
