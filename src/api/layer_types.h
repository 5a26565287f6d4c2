// Names of types that layers may have, from the command, the packages and engine files.
#pragma once

#include <set>
#include <string>

#include "base/result.h"
#include "plan/options.h"

namespace octavo::api {

/// Errors of both: `usage`, with the names that are known.
[[nodiscard]] Result<plan::LayerTypes> allowed_types(const std::set<std::string>& names);
[[nodiscard]] Result<plan::PrecisionRule> precision_rule(const std::string& pattern, const std::string& type);

}  // namespace octavo::api
