// Why a tactic cannot be taken for a region, as data: a property of the region, what it is here, and what the kernel needs it to be.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/reason.h"
#include "base/result.h"

namespace octavo::region {

/// `property` ("input type", "kernel taps") is `has`, the kernel needs `needs` ("u8", "at most 121"): Cause::kernel_needs.
template <class Has, class Needs>
[[nodiscard]] Reasons unmet(std::string_view property, const Has& has, const Needs& needs) {
  return {because<Cause::kernel_needs>(property, fmt::format("{}", has), fmt::format("{}", needs))};
}

/// The refusal as the error of a function that would have made a kernel's settings.
[[nodiscard]] inline tl::unexpected<Error> refuse(Reasons why) {
  std::string message = spelled(why);
  return tl::unexpected<Error>(Error{ErrorKind::unsupported, std::move(message), std::move(why)});
}
template <class Has, class Needs>
[[nodiscard]] tl::unexpected<Error> refuse(std::string_view property, const Has& has, const Needs& needs) {
  return refuse(unmet(property, has, needs));
}

/// Of such a function: why it has no value; empty where it has one.
[[nodiscard]] inline Reasons refusal_of(const Error& error) {
  return error.reasons.empty() ? Reasons{because<Cause::kernel_error>(error.message)} : error.reasons;
}
template <class T>
[[nodiscard]] Reasons refusal_of(const Result<T>& made) {
  return made ? Reasons{} : refusal_of(made.error());
}

}  // namespace octavo::region
