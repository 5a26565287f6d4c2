// Parameters of tactics that are numbers, as families outside avx512/ read them; avx512/ has Target.
#pragma once

#include <charconv>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "region/tactic.h"

namespace octavo::cpu {

/// "row_tiles": so many row tiles, each a task or several. "splits": tasks that share a row tile, each with some channels.
/// "pixels": the most pixels of a tile. "rows": of a task's tile. "prefetch": how far ahead of what is computed (blocks of channels,
/// for weights; rows of the input, for depthwise) something is fetched.
inline constexpr std::string_view kRowTiles = "row_tiles", kSplits = "splits", kPixels = "pixels", kRows = "rows",
                                  kPrefetch = "prefetch";

/// The parameter, at most `most`; 0: the tactic has none, or no number of 1 and more.
[[nodiscard]] inline std::int64_t number(const region::Tactic& t, std::string_view name, std::int64_t most) {
  const auto found = t.parameters.find(std::string(name));
  if (found == t.parameters.end()) return 0;
  const std::string& s = found->second;
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n);
  return error == std::errc() && end == s.data() + s.size() && n >= 1 ? (n < most ? n : most) : 0;
}

/// Sets of one parameter each, for searches.
using Parameters = std::vector<std::map<std::string, std::string>>;
inline void add(Parameters& to, std::string_view name, std::int64_t value) {
  std::map<std::string, std::string> set{{std::string(name), std::to_string(value)}};
  for (const auto& have : to) {
    if (have == set) return;
  }
  to.push_back(std::move(set));
}

}  // namespace octavo::cpu
