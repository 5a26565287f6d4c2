// Whole files, read and written.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/read_file.h"  // read_file
#include "base/result.h"
#include "base/write_file.h"  // write_file

namespace octavo::cli {

/// Before long work: every path that is not empty (nor "-") can be written. Errors: those of check_writable.
[[nodiscard]] Status check_outputs(std::initializer_list<std::string_view> paths);
/// The lines of a text file without line ends; a last empty line is dropped.
[[nodiscard]] Result<std::vector<std::string>> read_lines(const std::string& path);

}  // namespace octavo::cli
