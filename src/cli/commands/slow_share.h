// How much of a run's time is spent where no vector kernel works.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/engine.h"

namespace octavo::cli {

/// One line for `build` and `explain`: "91.0 % of the time in 2 regions without vector kernels: lstm, ...". Empty when every region
/// has a vector kernel: the counts of operations above it then say all. Cost: four runs on random inputs, only if there is such a
/// region. Errors: those of running.
[[nodiscard]] Result<std::string> slow_share(const std::shared_ptr<const engine::Engine>& engine, int threads);

}  // namespace octavo::cli
