// The error for an engine that was built with other versions of kernels. Loaders distinguish it from other errors, because a rebuild fixes it.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <string>

#include "base/causes/kernels.h"
#include "base/result.h"
#include "region/refusal.h"
#include "region/tactic.h"

namespace octavo::region {

inline constexpr std::string_view kKernelVersion = "kernel version";

/// `unsupported`: the family of the stored tactic has version `own` here.
[[nodiscard]] inline tl::unexpected<Error> other_version(const Tactic& stored, int own) {
  return tl::unexpected<Error>(
      Error{ErrorKind::unsupported,
            fmt::format("tactic {} is of version {}, this Octavo has version {}", stored.name(), stored.version, own),
            unmet(kKernelVersion, stored.version, own)});
}

/// Is it that error, for an engine that is older than this Octavo's kernels?
[[nodiscard]] inline bool is_older_version(const Error& error) {
  if (error.reasons.size() != 1 || error.reasons[0].cause != cause::kernel_needs) return false;
  const auto& values = error.reasons[0].values;  // property, has, needs
  const auto number = [&](std::size_t i) {
    const auto* text = std::get_if<std::string>(&values[i]);
    int value = 0;
    if (text != nullptr) std::from_chars(text->data(), text->data() + text->size(), value);
    return value;
  };
  const auto* property = std::get_if<std::string>(&values[0]);
  return property != nullptr && *property == kKernelVersion && number(1) < number(2);
}

}  // namespace octavo::region
