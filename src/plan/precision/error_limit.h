// --max-error: which permitted layers have to stay float32.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace octavo::plan {

/// A permitted layer and what its int8 brings. "float32" here: what it is without int8 (bfloat16 where only that is allowed).
struct ErrorUnit {
  std::set<std::string> nodes;  ///< ONNX nodes that change together
  double gain = 0;              ///< seconds that int8 saves; not positive: none
  double alone = 0;             ///< error of the network with only these in int8 (filled by limit_error)
};

struct ErrorLimit {
  std::vector<std::size_t> kept;  ///< units that stay float32, in the order in which they were chosen
  double before = 0, after = 0;   ///< errors with all units in int8, and with `kept` in float32
  int evaluations = 0;
};

/// `error(nodes)`: the network's error with these nodes in float32. Units go in the order of their error a second gained until the
/// limit holds (the shortest such prefix, by bisection), then each that is not needed comes back. Ties go by position, so the
/// result depends on the errors and gains alone. At most 2 * units + log2(units) + 3 calls; one when nothing exceeds the limit.
/// Errors: those of `error`; `usage` when all units in float32 still exceed it.
[[nodiscard]] Result<ErrorLimit> limit_error(std::vector<ErrorUnit>& units, double limit,
                                             const std::function<Result<double>(const std::set<std::string>&)>& error);

}  // namespace octavo::plan
