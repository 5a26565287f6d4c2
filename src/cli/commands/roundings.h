// octavo explain --roundings: what the placement demands inside regions, and the time without it.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/inputs/model.h"

namespace octavo::cli {

/// Prints it, as text or JSON. Measures the regions that differ (--effort >= 1) and merges the times into the timing cache.
/// Errors: `usage` for an engine file, which has no network to change, and for a file of `without` if no rounding would be left
/// out.
struct BuildWithout {
  std::string costly;  ///< where to write the engine of the network without those that cost time; empty: none is built
  std::string all;     ///< the same without all of them
};
[[nodiscard]] Result<int> explain_roundings(const ModelOptions& options, bool json, const BuildWithout& without);
/// The line of the default summary. Empty for engine files, and if ranges were given, because ranges do not demand roundings.
[[nodiscard]] Result<std::string> roundings_summary(const Loaded& loaded, const ModelOptions& options);

}  // namespace octavo::cli
