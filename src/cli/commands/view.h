// The subcommand of view.cc.
#pragma once

#include "cli/commands/commands.h"

namespace octavo::cli {

Command add_view(Arguments& app);

}  // namespace octavo::cli
