// Operators with several results whose stages store some of them.
#pragma once

#include <string_view>

#include "region/region.h"

namespace octavo::region {

/// The result that store `i` takes; as large as a broken engine makes it, so compare it with the number of results.
[[nodiscard]] inline std::size_t result_of_store(const Anchor& anchor, std::size_t i) {
  return i < anchor.store_results.size() ? static_cast<std::size_t>(anchor.store_results[i]) : i;
}

/// Key of the same list among the attributes of an anchor, in plans as JSON, keys and hashes.
inline constexpr std::string_view kStoreResults = "store_results";

/// The anchor's attributes as text and hashes have them: those of its facts and the list of results, defaults included.
[[nodiscard]] inline ir::Attrs attributes_of(const Anchor& anchor) {
  ir::Attrs attrs = ir::attrs_of(anchor.facts);
  if (!anchor.store_results.empty()) attrs.emplace(kStoreResults, anchor.store_results);
  return attrs;
}

/// The other way, once the anchor's operator and inputs are known. Error: ir::facts_of's.
[[nodiscard]] inline Status set_attributes(Anchor& anchor, const ir::Attrs& attrs) {
  const auto results = attrs.find(kStoreResults);
  if (results != attrs.end()) {
    const auto* list = std::get_if<std::vector<std::int64_t>>(&results->second);
    if (list == nullptr) return fail(ErrorKind::bad_model, "attribute store_results is not a list of integers");
    anchor.store_results = *list;
  }
  OCTAVO_TRY(anchor.facts, ir::facts_of(anchor.op, attrs, anchor.inputs.empty() ? 0 : anchor.inputs[0].dims.size()));
  return {};
}

}  // namespace octavo::region
