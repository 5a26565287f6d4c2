// Why a tactic cannot be taken for a region, as data: a property of the region, what it is here, and what the kernel needs it to be.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/reason.h"
#include "base/result.h"

namespace octavo::region {

/// `property` ("input type", "kernel taps") is `has`, the kernel needs `needs` ("u8", "at most 121"): cause::kernel_needs.
[[nodiscard]] Reasons unmet_as_text(std::string_view property, std::string has, std::string needs);
template <class Has, class Needs>
[[nodiscard]] Reasons unmet(std::string_view property, Has has, Needs needs) {
  return unmet_as_text(property, fmt::format("{}", has), fmt::format("{}", needs));
}

/// The refusal as the error of a function that would have made a kernel's settings.
[[nodiscard]] tl::unexpected<Error> refuse(Reasons why);
template <class Has, class Needs>
[[nodiscard]] tl::unexpected<Error> refuse(std::string_view property, Has has, Needs needs) {
  return refuse(unmet_as_text(property, fmt::format("{}", has), fmt::format("{}", needs)));
}

/// Of such a function: why it has no value; empty where it has one.
[[nodiscard]] Reasons refusal_of(const Error& error);
template <class T>
[[nodiscard]] Reasons refusal_of(const Result<T>& made) {
  return made ? Reasons{} : refusal_of(made.error());
}

}  // namespace octavo::region
