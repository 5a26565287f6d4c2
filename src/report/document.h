// The plan as one JSON document (docs/schema.md), for those who add to it before it is written.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "region/region.h"
#include "report/laws.h"

namespace octavo::report {

/// What report::to_json prints. `built_by`: the version of Octavo that built the engine. Names that are not UTF-8 are in it as they are: dump with error_handler_t::replace.
[[nodiscard]] nlohmann::json document(const region::Plan& plan, const std::string& plan_hash,
                                      const std::vector<std::size_t>& regions, const LawLog* laws = nullptr,
                                      const std::string& built_by = {});

}  // namespace octavo::report
