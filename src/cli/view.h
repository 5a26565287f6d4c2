// The subcommand of view.cc.
#pragma once

#include "cli/commands.h"

namespace octavo::cli {

Command add_view(CLI::App& app);

}  // namespace octavo::cli
