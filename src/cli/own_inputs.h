// What holds for every option that names a file (Option::reads, writes, updates), asked once, before the command runs.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/arguments.h"

namespace octavo::cli {

/// No file that the command writes is one that it reads: neither by the same path nor by another one of the same file (a link). A file that
/// one option reads and writes is its own matter; folders of data are compared as folders, not file by file. Errors: usage, naming both options.
[[nodiscard]] Status check_own_inputs(const Arguments& command);

/// "--sign=", where the shell variable behind it is not set: the parser would take the next argument as the value. Errors: usage.
[[nodiscard]] Status check_empty_values(const Arguments& command, const std::vector<std::string>& arguments);

}  // namespace octavo::cli
