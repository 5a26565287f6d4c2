#include "base/nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace octavo {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0U);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, substituted}));
    }
  }
  return row[b.size()];
}

}  // namespace

std::vector<std::string> nearest(const std::set<std::string>& names, std::string_view wanted) {
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (const auto& name : names) {
    const bool inside = name.find(wanted) != std::string::npos;
    ranked.emplace_back(inside ? 0 : 1 + edit_distance(name, wanted), name);
  }
  std::ranges::sort(ranked);
  std::vector<std::string> out;
  for (const auto& [distance, name] : ranked) {
    if (out.size() < 3) out.push_back(fmt::format("\"{}\"", name));
  }
  return out;
}

std::string nearest_text(const std::set<std::string>& names, std::string_view wanted) {
  return names.empty() ? std::string() : fmt::format("; nearest: {}", fmt::join(nearest(names, wanted), ", "));
}

}  // namespace octavo
