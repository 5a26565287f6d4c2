#include "cli/own_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace octavo::cli {
namespace {

namespace fs = std::filesystem;

/// A file or folder on a disk: what is written to pipes and devices replaces nothing.
bool on_disk(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) || fs::is_directory(path, ignored);
}

/// The files that a value may name: FILE, NAME=FILE, @LIST.
std::vector<std::string> named_files(const std::string& value) {
  std::vector<std::string> out{value};
  if (const auto at = value.find('='); at != std::string::npos) out.push_back(value.substr(at + 1));
  if (value.starts_with('@')) out.push_back(value.substr(1));
  std::erase_if(out, [](const std::string& path) { return !on_disk(path); });
  return out;
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return fs::equivalent(a, b, ignored);
}

}  // namespace

Status check_own_inputs(const Arguments& command) {
  const std::vector<Option*> options = command.options();
  const auto check = [](const Option& out, const std::string& path, const Option& in) -> Status {
    for (const std::string& value : in.results()) {
      const std::vector<std::string> files = named_files(value);
      if (std::ranges::none_of(files, [&](const std::string& file) { return same_file(path, file); })) continue;
      return fail(ErrorKind::usage,
                  fmt::format("{0} {1}: it is also an input, {2} {3}, and would be overwritten\n  name another file "
                              "for {0}",
                              out.label(), path, in.label(), value));
    }
    return {};
  };
  for (const Option* out : options) {
    if (out->use() != FileUse::written && out->use() != FileUse::updated) continue;
    for (const std::string& path : out->results()) {
      if (path == "-" || !on_disk(path)) continue;
      for (const Option* in : options) {
        if (in == out || (in->use() != FileUse::read && in->use() != FileUse::updated)) continue;
        OCTAVO_CHECK(check(*out, path, *in));
      }
    }
  }
  return {};
}

Status check_empty_values(const Arguments& command, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("--") || !argument.ends_with('=')) continue;
    const std::string name = argument.substr(0, argument.size() - 1);
    for (const Option* option : command.options()) {
      if (!option->takes_empty() && std::ranges::count(option->spellings(), name) > 0)
        return fail(ErrorKind::usage, fmt::format("{}: {}", name, kEmptyValue));
    }
  }
  return {};
}

}  // namespace octavo::cli
