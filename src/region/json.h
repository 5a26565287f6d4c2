// Inside of to_json and from_json: what both sides must agree on.
#pragma once

#include <array>
#include <string_view>

#include "region/region.h"

namespace octavo::region::detail {

inline constexpr int kFormat = 2;
inline constexpr std::array<std::string_view, 4> kKinds{"input", "output", "constant",
                                                        "arena"};  ///< of finished plans, in the order of BufferKind
[[nodiscard]] std::string_view name_of(BufferKind kind);

}  // namespace octavo::region::detail
