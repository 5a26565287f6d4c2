// The subcommand of view.cc.
#pragma once

#include "cli/commands.h"

namespace octavo::cli {

Command add_view(Arguments& app);

}  // namespace octavo::cli
