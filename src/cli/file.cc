#include "cli/file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace octavo::cli {
namespace {

struct Close {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using File = std::unique_ptr<std::FILE, Close>;

tl::unexpected<Error> io_error(std::string_view doing, const std::string& path) {
  return fail(ErrorKind::io, fmt::format("{} \"{}\": {}", doing, path, std::strerror(errno)));
}

}  // namespace

Result<std::vector<std::byte>> read_file(const std::string& path) {
  const File file(std::fopen(path.c_str(), "rb"));
  if (!file) return io_error("cannot read", path);
  std::vector<std::byte> bytes;
  std::size_t got = 0;
  do {  // by doubling, not by the file's size: pipes have none
    const std::size_t used = bytes.size();
    bytes.resize(used == 0 ? 65536 : 2 * used);
    got = std::fread(bytes.data() + used, 1, bytes.size() - used, file.get());
    bytes.resize(used + got);
  } while (got != 0);
  if (std::ferror(file.get()) != 0) return io_error("cannot read", path);
  return bytes;
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
