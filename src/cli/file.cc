#include "cli/file.h"

namespace octavo::cli {

Status check_outputs(std::initializer_list<std::string_view> paths) {
  for (const std::string_view path : paths) {
    if (!path.empty() && path != "-") OCTAVO_CHECK(check_writable(std::string(path)));
  }
  return {};
}

Result<std::vector<std::string>> read_lines(const std::string& path) {
  OCTAVO_TRY(const auto bytes, read_file(path));
  std::vector<std::string> lines(1);
  for (const std::byte b : bytes) {
    const char c = static_cast<char>(b);
    if (c == '\n') {
      lines.emplace_back();
    } else if (c != '\r') {
      lines.back() += c;
    }
  }
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace octavo::cli
