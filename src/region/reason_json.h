// Reasons in JSON: {"cause": "several_readers", "tensor": "x", "readers": 3}, the fields under their own names (docs/schema.md).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/reason.h"
#include "base/result.h"

namespace octavo::region {

/// Numbers that are not finite are {"f": "inf"}, as everywhere in plans.
[[nodiscard]] nlohmann::json to_json(const Reason& reason);
[[nodiscard]] nlohmann::json to_json(const Reasons& reasons);

/// Trusts nothing: an unknown cause, a field that is missing, of another kind or not the cause's is an error that names it.
[[nodiscard]] Result<Reason> reason_from_json(const nlohmann::json& j);

}  // namespace octavo::region
