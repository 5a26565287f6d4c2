// The names that somebody probably meant.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

/// Up to three names in quotes: those that contain `wanted`, then the ones that differ least from it.
[[nodiscard]] std::vector<std::string> nearest(const std::set<std::string>& names, std::string_view wanted);

/// "; nearest: "data", "date"" for the end of a sentence about the name `wanted`; empty without names.
[[nodiscard]] std::string nearest_text(const std::set<std::string>& names, std::string_view wanted);

}  // namespace octavo
