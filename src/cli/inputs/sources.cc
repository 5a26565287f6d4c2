#include "cli/inputs/sources.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/file.h"

namespace octavo::cli {
namespace {

namespace fs = std::filesystem;

bool digit(char c) {
  return c >= '0' && c <= '9';
}

/// A pipe or the like: its bytes come once.
bool is_pipe(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode) || S_ISCHR(info.st_mode));
}

Result<std::vector<std::byte>> read_stdin() {
  std::vector<std::byte> bytes;
  if (!read_all(STDIN_FILENO, bytes)) return fail(ErrorKind::io, fmt::format("cannot read stdin: {}", std::strerror(errno)));
  return bytes;
}

Result<Source> one(const std::string& path) {
  Source s{path, path, {}};
  if (path == "-") {
    s.name = "stdin";
    s.path.clear();
    OCTAVO_TRY(s.bytes, read_stdin());
  } else if (is_pipe(path)) {
    s.path.clear();
    OCTAVO_TRY(s.bytes, read_file(path));
  }
  return s;
}

bool is_input_file(const fs::path& path) {
  std::string suffix = path.extension().string();
  std::transform(suffix.begin(), suffix.end(), suffix.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return suffix == ".jpg" || suffix == ".jpeg" || suffix == ".png" || suffix == ".npy" || suffix == ".npz";
}

Result<std::vector<Source>> all(std::vector<std::string> paths) {
  std::vector<Source> sources;
  for (std::string& path : paths) sources.push_back({path, path, {}});
  return sources;
}

Result<std::vector<Source>> in_folder(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (auto at = fs::directory_iterator(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored) && is_input_file(at->path())) paths.push_back(at->path().string());
  }
  if (error) return fail(ErrorKind::io, fmt::format("cannot read the folder \"{}\": {}", folder, error.message()));
  if (paths.empty())
    return fail(ErrorKind::bad_input, fmt::format("--input {}: no .jpg, .jpeg, .png, .npy or .npz file in this folder", folder));
  std::sort(paths.begin(), paths.end(), natural_less);
  return all(std::move(paths));
}

Result<std::vector<Source>> matching(const std::string& pattern) {
  ::glob_t found{};
  const int code = ::glob(pattern.c_str(), GLOB_NOSORT | GLOB_TILDE, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + (code == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  std::error_code ignored;
  std::erase_if(paths, [&](const std::string& p) { return fs::is_directory(p, ignored); });
  if (paths.empty()) return fail(ErrorKind::bad_input, fmt::format("--input {}: no file matches this pattern", pattern));
  std::sort(paths.begin(), paths.end(), natural_less);
  return all(std::move(paths));
}

Result<std::vector<Source>> listed(const std::string& list) {
  OCTAVO_TRY(const auto lines, read_lines(list));
  const fs::path folder = fs::path(list).parent_path();
  std::vector<Source> sources;
  for (const std::string& line : lines) {
    if (line.empty() || line.starts_with('#')) continue;
    const std::string path = (fs::path(line).is_absolute() ? fs::path(line) : folder / line).string();
    sources.push_back({line, path, {}});
  }
  if (sources.empty()) return fail(ErrorKind::bad_input, fmt::format("--input @{}: the list names no file", list));
  return sources;
}

}  // namespace

Result<std::vector<std::byte>> Source::read() const {
  if (path.empty()) return bytes;
  return read_file(path);
}

bool natural_less(const std::string& a, const std::string& b) {
  std::size_t i = 0, k = 0;
  while (i < a.size() && k < b.size()) {
    if (!digit(a[i]) || !digit(b[k])) {
      if (a[i] != b[k]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[k]);
      ++i, ++k;
      continue;
    }
    std::size_t x = i, y = k;
    while (x < a.size() && a[x] == '0') ++x;
    while (y < b.size() && b[y] == '0') ++y;
    std::size_t ends_a = x, ends_b = y;
    while (ends_a < a.size() && digit(a[ends_a])) ++ends_a;
    while (ends_b < b.size() && digit(b[ends_b])) ++ends_b;
    if (ends_a - x != ends_b - y) return ends_a - x < ends_b - y;
    if (const int order = a.compare(x, ends_a - x, b, y, ends_b - y); order != 0) return order < 0;
    i = ends_a, k = ends_b;
  }
  if ((i == a.size()) != (k == b.size())) return i == a.size();
  return a < b;  // differ in leading zeros only
}

Result<std::vector<Source>> expand_source(const std::string& spec) {
  std::error_code ignored;
  if (spec != "-" && fs::is_directory(spec, ignored)) return in_folder(spec);
  const bool there = spec == "-" || fs::exists(spec, ignored);
  if (!there && spec.starts_with('@')) return listed(spec.substr(1));
  if (!there && spec.find_first_of("*?[") != std::string::npos) return matching(spec);
  std::vector<Source> sources;
  OCTAVO_TRY(sources.emplace_back(), one(spec));
  return sources;
}

Status spool(std::string& path) {
  if (path != "-" && !is_pipe(path)) return {};
  OCTAVO_TRY(const Source source, one(path));
  const int fd = ::memfd_create("octavo-input", 0);  // stays open as long as the process: its path names it
  if (fd < 0 || !write_all(fd, source.bytes.data(), source.bytes.size()))
    return fail(ErrorKind::io, fmt::format("cannot keep the contents of \"{}\" in memory: {}", source.name, std::strerror(errno)));
  path = fmt::format("/proc/self/fd/{}", fd);
  return {};
}

}  // namespace octavo::cli
