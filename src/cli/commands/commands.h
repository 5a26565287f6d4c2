// The subcommands, one file each. add_X declares the options; the returned function does the work and gives the exit code.
#pragma once

#include <functional>

#include "base/result.h"
#include "cli/arguments.h"

namespace octavo::cli {

using Command = std::function<Result<int>()>;

Command add_build(Arguments& app);
Command add_run(Arguments& app);
Command add_bench(Arguments& app);
Command add_explain(Arguments& app);
Command add_check(Arguments& app);
Command add_cache(Arguments& app);
Command add_profile(Arguments& app);
Command add_convert(Arguments& app);
Command add_advise(Arguments& app);
Command add_doctor(Arguments& app);
Command add_rebuild(Arguments& app);

/// The whole command: parses, runs one subcommand, prints errors as "error: ..." on stderr. Returns the exit code (0; 1: `check`
/// found a difference; else octavo::exit_code).
int run_main(int argc, const char* const* argv);

}  // namespace octavo::cli
