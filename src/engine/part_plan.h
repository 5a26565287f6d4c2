// The plan of a part of an engine file, before it is an engine.
#pragma once

#include <string_view>

#include "engine/source.h"
#include "region/region.h"

namespace octavo::engine {

/// Reads the plan and puts the bytes of its constants into it, copied; verifies it, and that it fits this machine. Errors: bad_engine.
[[nodiscard]] Result<region::Plan> plan_with_constants(const Part& part, std::string_view name);

/// The arena and what callers pass are held against the machine's memory: kernels are made for sizes that can exist. Error: bad_engine.
[[nodiscard]] Status fits_memory(const region::Plan& plan, std::string_view name);

}  // namespace octavo::engine
