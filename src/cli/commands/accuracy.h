// The subcommands about accuracy, as commands.h declares the others.
#pragma once

#include "cli/commands/commands.h"

namespace octavo::cli {

Command add_quantize(Arguments& app);
Command add_eval(Arguments& app);

}  // namespace octavo::cli
