// Shapes that may be anything, and what messages call them. For verify.cc alone.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ir/tensor.h"

namespace octavo::region::detail {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 48;

[[nodiscard]] inline tl::unexpected<Error> bad(std::string what) {
  return fail(ErrorKind::internal, std::move(what));
}

/// "store 2"; spelled where something is wrong with it.
struct What {
  What(const char* one) : kind(one) {}  // NOLINT
  What(const char* one, std::size_t number) : kind(one), index(static_cast<int>(number)) {}
  const char* kind;
  int index = -1;
};
[[nodiscard]] inline std::string what_text(const What& w) {
  return w.index < 0 ? std::string(w.kind) : fmt::format("{} {}", w.kind, w.index);
}
[[nodiscard]] inline std::string_view what_text(std::string_view what) {
  return what;
}

/// Element counts of a shape from a file: dimensions >= 0, and the product of those that are not 0 within 2^48. `what`: a name, or What.
template <class Name>
[[nodiscard]] Status check_shape(const ir::Shape& shape, const Name& what) {
  std::int64_t n = 1;
  if (shape.size() > 32) return bad(fmt::format("{} has rank {}, at most 32", what_text(what), shape.size()));
  for (const std::int64_t d : shape) {
    if (d < 0 || (d > 0 && n > kMaxBytes / d))
      return bad(fmt::format("{} is {}: negative or too large", what_text(what), ir::to_string(shape)));
    n *= std::max<std::int64_t>(d, 1);
  }
  return {};
}

}  // namespace octavo::region::detail
