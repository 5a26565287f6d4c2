// Getting to an engine with the arrays of a run at hand, for models whose shapes depend on the values of inputs.
#pragma once

#include "cli/inputs/model.h"
#include "cli/inputs/npy.h"

namespace octavo::cli {

/// As load in model.h; `arrays` give the values of inputs that decide shapes, where the build turns out to need them.
[[nodiscard]] Result<Loaded> load(const ModelOptions& options, Progress& progress, const Shapes& shapes, std::int64_t batch,
                                  const Arrays& arrays);

}  // namespace octavo::cli
