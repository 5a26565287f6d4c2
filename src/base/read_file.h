// Whole files, read.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace octavo {

/// All bytes of a file, a pipe (2 GiB at most) or a device (64 KiB at most), until it ends. `what`: "ranges", "model", ...: a word for the error, or empty. Fails with
/// `io`: cannot read WHAT "PATH": the system's reason ("Is a directory").
[[nodiscard]] Result<std::vector<std::byte>> read_file(const std::string& path, std::string_view what = "");
/// The same as text.
[[nodiscard]] Result<std::string> read_text(const std::string& path, std::string_view what = "");

/// Until the descriptor ends. False: errno tells why.
[[nodiscard]] bool read_all(int fd, std::vector<std::byte>& bytes);

}  // namespace octavo
