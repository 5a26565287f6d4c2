// --gpu: an engine for a GPU that is not in this machine.
#pragma once

#include "cli/arguments.h"
#include "cli/inputs/model.h"

namespace octavo::cli {

/// For commands that plan and do not run. The option means --device cuda:NAME, and effort 0 unless an effort is given.
void add_gpu_option(Arguments& app, ModelOptions& o);

}  // namespace octavo::cli
