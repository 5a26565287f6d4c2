// The plan of a part of an engine file, before it is an engine.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/source.h"
#include "region/region.h"

namespace octavo::engine {

/// The plan as it stands there, verified: its constants have no bytes, and no kernel is made. Errors: bad_engine.
[[nodiscard]] Result<region::Plan> plan_of(const Part& part, std::string_view name);

/// Reads the plan and puts the bytes of its constants into it, copied; verifies it, and that it fits this machine. Errors: bad_engine.
[[nodiscard]] Result<region::Plan> plan_with_constants(const Part& part, std::string_view name);

/// How many engine files this process has made ready to run: tests hold a command to one.
[[nodiscard]] std::uint64_t loads();

/// The arena and what callers pass are held against the machine's memory: kernels are made for sizes that can exist. Error: bad_engine.
[[nodiscard]] Status fits_memory(const region::Plan& plan, std::string_view name);

}  // namespace octavo::engine
