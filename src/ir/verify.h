// Structural checks run after every pass in debug builds, and after import in all builds.
#pragma once

#include "base/result.h"
#include "ir/graph.h"

namespace octavo::ir {

/// Single definition, no cycles, live inputs, arity, inferred types equal to the stored ones, quantizers well formed (scale > 0 and
/// finite, entry counts match the axis), constants with payload, outputs live, every non-input node has an origin or is a constant.
[[nodiscard]] Status verify(const Graph& g);

}  // namespace octavo::ir
