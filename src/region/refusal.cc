#include "region/refusal.h"

#include <utility>

#include "base/causes/kernels.h"

namespace octavo::region {

Reasons unmet_as_text(std::string_view property, std::string has, std::string needs) {
  return {because<cause::kernel_needs>(property, std::move(has), std::move(needs))};
}

tl::unexpected<Error> refuse(Reasons why) {
  std::string message = spelled(why);
  return tl::unexpected<Error>(Error(ErrorKind::unsupported, std::move(message), std::move(why)));
}

Reasons refusal_of(const Error& error) {
  return error.reasons.empty() ? Reasons{because<cause::kernel_error>(error.message)} : error.reasons;
}

}  // namespace octavo::region
