// Operators with several results whose stages store some of them.
#pragma once

#include <string_view>

#include "region/region.h"

namespace octavo::region {

/// Attribute of an anchor with several results: which of them each store takes (indices). Absent: store i takes result i.
inline constexpr std::string_view kStoreResults = "store_results";

/// The result that store `i` takes; as large as a broken engine makes it, so compare it with the number of results.
[[nodiscard]] inline std::size_t result_of_store(const Anchor& anchor, std::size_t i) {
  const std::vector<std::int64_t> results = ir::get_ints(anchor.attrs, kStoreResults);
  return i < results.size() ? static_cast<std::size_t>(results[i]) : i;
}

}  // namespace octavo::region
