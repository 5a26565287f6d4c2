// The error for an engine that was built with other versions of kernels. Loaders distinguish it from other errors, because a rebuild fixes it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <variant>

#include "base/causes/kernels.h"
#include "base/result.h"
#include "region/tactic.h"

namespace octavo::region {

/// `unsupported`: the family of the stored tactic has version `own` here.
[[nodiscard]] inline tl::unexpected<Error> other_version(const Tactic& stored, int own) {
  return tl::unexpected<Error>(
      Error{ErrorKind::unsupported,
            fmt::format("tactic {} is of version {}, this Octavo has version {}", stored.name(), stored.version, own),
            {because<cause::other_kernel_version>(stored.name(), std::int64_t{stored.version}, std::int64_t{own})}});
}

/// Is it that error, for an engine that is older than this Octavo's kernels?
[[nodiscard]] inline bool is_older_version(const Error& error) {
  if (error.reasons.size() != 1 || error.reasons[0].cause != cause::other_kernel_version) return false;
  const auto& values = error.reasons[0].values;  // tactic, stored, own
  return std::get<std::int64_t>(values[1]) < std::get<std::int64_t>(values[2]);
}

}  // namespace octavo::region
