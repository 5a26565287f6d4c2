// OCTAVO_FUZZ_GRAPHS, OCTAVO_FUZZ_SEED: how much a fuzz test runs, and from where on.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace octavo::testing {

/// The number in the environment variable `name`, else `fallback`.
[[nodiscard]] inline std::uint64_t fuzz_setting(const char* name, std::uint64_t fallback) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
}

}  // namespace octavo::testing
