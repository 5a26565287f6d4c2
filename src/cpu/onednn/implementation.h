// The name that oneDNN gives to an implementation of a primitive: it has no other way to say which code it picked.
#pragma once

#include <string_view>

namespace octavo::cpu {

/// Is it the library's own reference, "ref:any" or "ref_int8:any", which is scalar code?
[[nodiscard]] inline bool is_scalar_implementation(std::string_view name) {
  return name.find("ref") != std::string_view::npos;
}

}  // namespace octavo::cpu
