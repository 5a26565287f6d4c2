// Decisions as JSON, for engine files that serve other shapes than those that they were tuned for.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "plan/decided.h"

namespace octavo::plan {

/// All but what keep_tactics fills: that is in the plan.
[[nodiscard]] nlohmann::json to_json(const Decided& decided);

/// Trusts nothing. Errors: bad_engine, for what to_json does not write.
[[nodiscard]] Result<Decided> decided_from_json(const nlohmann::json& j);

}  // namespace octavo::plan
