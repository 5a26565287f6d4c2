// Whole files, read and written.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/write_file.h"  // write_file

namespace octavo::cli {

/// All bytes of a file. Fails with `io` naming the path and the system's reason.
[[nodiscard]] Result<std::vector<std::byte>> read_file(const std::string& path);
/// The lines of a text file without line ends; a last empty line is dropped.
[[nodiscard]] Result<std::vector<std::string>> read_lines(const std::string& path);

}  // namespace octavo::cli
