// The subcommands, one file each. add_X declares the options; the returned function does the work and gives the exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/result.h"

namespace octavo::cli {

using Command = std::function<Result<int>()>;

Command add_build(CLI::App& app);
Command add_run(CLI::App& app);
Command add_bench(CLI::App& app);
Command add_explain(CLI::App& app);
Command add_check(CLI::App& app);
Command add_cache(CLI::App& app);
Command add_profile(CLI::App& app);
Command add_convert(CLI::App& app);
Command add_advise(CLI::App& app);
Command add_doctor(CLI::App& app);
Command add_rebuild(CLI::App& app);

/// The whole command: parses, runs one subcommand, prints errors as "error: ..." on stderr. Returns the exit code (0; 1: `check`
/// found a difference; else octavo::exit_code).
int run_main(int argc, const char* const* argv);

}  // namespace octavo::cli
