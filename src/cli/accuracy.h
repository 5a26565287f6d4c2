// The subcommands about accuracy, as commands.h declares the others.
#pragma once

#include "cli/commands.h"

namespace octavo::cli {

Command add_quantize(CLI::App& app);
Command add_eval(CLI::App& app);

}  // namespace octavo::cli
