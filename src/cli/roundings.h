// octavo explain --roundings: what the placement demands inside regions, and the time without it.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/model.h"

namespace octavo::cli {

/// Prints it, as text or JSON. Measures the regions that differ (--effort >= 1) and merges the times into the timing cache.
/// `build_without`: where to write the engine of the network without those that cost time; empty: none is built.
/// Errors: `usage` for an engine file, which has no network to change, and for `build_without` if none costs time.
[[nodiscard]] Result<int> explain_roundings(const ModelOptions& options, bool json, const std::string& build_without);
/// The line of the default summary; empty for engine files and where ranges were given, whose roundings nobody demands.
[[nodiscard]] Result<std::string> roundings_summary(const Loaded& loaded, const ModelOptions& options);

}  // namespace octavo::cli
