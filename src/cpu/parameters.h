// Parameters of tactics that several families have.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <vector>

#include "region/family.h"

namespace octavo::cpu {

inline constexpr region::ParameterRow kRowTiles{"row_tiles", "1..1000000", "so many row tiles, each a task or several"},
    kSplits{"splits", "1..1000000", "tasks that share a row tile, each with some channels"},
    kPixels{"pixels", "1..1000000", "the most pixels of a tile"}, kRows{"rows", "1..1000000", "rows of a task's tile"},
    kPrefetch{"prefetch", "0..1000000",
              "how far ahead of what is computed something is fetched: blocks of channels, for weights; rows of the input, for "
              "depthwise"};

/// The parameter, at most `most`; 0: there is none.
[[nodiscard]] inline std::int64_t number(const region::Parameters& parameters, const region::ParameterRow& row, std::int64_t most) {
  const auto found = parameters.find(std::string(row.name));
  if (found == parameters.end()) return 0;
  const std::string& s = found->second;
  std::int64_t n = 0;
  std::from_chars(s.data(), s.data() + s.size(), n);
  return n < 1 ? 0 : n < most ? n : most;
}

/// Adds a set of this parameter alone, for searches.
inline void add(std::vector<region::Parameters>& to, const region::ParameterRow& row, std::int64_t value) {
  region::Parameters set{{std::string(row.name), std::to_string(value)}};
  for (const auto& have : to) {
    if (have == set) return;
  }
  to.push_back(std::move(set));
}

}  // namespace octavo::cpu
