// The version of the JSON that tools read: `explain --json`, the profile files, and `Engine.layers` of Python (docs/schema.md).
#pragma once

namespace octavo::report {

/// Raised when a field goes or changes its meaning; new fields and new causes do not raise it.
inline constexpr int kSchema = 1;

}  // namespace octavo::report
