#include "cli/inputs/labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include "cli/file.h"

namespace octavo::cli {
namespace {

Result<std::int64_t> number(const std::string& text, const std::string& where) {
  std::int64_t value = -1;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < 0)
    return fail(ErrorKind::bad_input, fmt::format("{}: \"{}\" is not the number of a class (0 or more)", where, text));
  return value;
}

/// Cells of one line; quotes around a cell are taken off, and commas inside of them do not count.
std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> out{""};
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      out.emplace_back();
    else if (c != '\r')
      out.back() += c;
  }
  return out;
}

std::string last_part(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

Result<std::vector<std::int64_t>> from_csv(const std::string& source, const std::vector<std::string>& lines, const FileData& data) {
  const std::vector<std::string> header = cells(lines.empty() ? "" : lines[0]);
  const auto file = std::find(header.begin(), header.end(), "file") - header.begin();
  const auto index = std::find(header.begin(), header.end(), "class_index") - header.begin();
  const auto columns = static_cast<std::ptrdiff_t>(header.size());
  if (file == columns || index == columns)
    return fail(ErrorKind::bad_input, fmt::format("--labels {}: the first line needs the columns file and class_index", source));
  std::map<std::string, std::int64_t> known;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const auto row = cells(lines[i]);
    if (static_cast<std::ptrdiff_t>(row.size()) <= std::max(file, index)) continue;
    OCTAVO_TRY(known[last_part(row[static_cast<std::size_t>(file)])],
               number(row[static_cast<std::size_t>(index)], fmt::format("--labels {} line {}", source, i + 1)));
  }
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < data.size(); ++i) {
    const auto at = known.find(last_part(data.path(i)));
    if (at == known.end()) return fail(ErrorKind::bad_input, fmt::format("--labels {}: no line for {}", source, data.path(i)));
    out.push_back(at->second);
  }
  return out;
}

}  // namespace

Result<std::vector<std::int64_t>> read_labels(const std::string& source, const FileData& data) {
  std::vector<std::int64_t> out;
  if (source == "folders") {
    std::set<std::string> names;
    const auto folder = [&](std::size_t i) { return std::filesystem::path(data.path(i)).parent_path().filename().string(); };
    for (std::size_t i = 0; i < data.size(); ++i) names.insert(folder(i));
    for (std::size_t i = 0; i < data.size(); ++i) out.push_back(std::distance(names.begin(), names.find(folder(i))));
    return out;
  }
  OCTAVO_TRY(const auto lines, read_lines(source));
  if (source.ends_with(".csv")) return from_csv(source, lines, data);
  if (lines.size() != data.size()) {
    return fail(ErrorKind::bad_input, fmt::format("--labels {}: {} lines for {} samples; give one number on each line", source,
                                                  lines.size(), data.size()));
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    OCTAVO_TRY(out.emplace_back(), number(lines[i], fmt::format("--labels {} line {}", source, i + 1)));
  }
  return out;
}

}  // namespace octavo::cli
