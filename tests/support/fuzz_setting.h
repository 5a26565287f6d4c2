// How much a fuzz test runs, and from where on. `make test` runs few rounds, `make test-all` (OCTAVO_FULL) all of them, `make test-long` (OCTAVO_LONG) many more.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace octavo::testing {

/// The number in the environment variable `name`, else `fallback`.
[[nodiscard]] inline std::uint64_t fuzz_setting(const char* name, std::uint64_t fallback) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
}

/// Whether everything is to be tested: OCTAVO_FULL or OCTAVO_LONG is set.
[[nodiscard]] inline bool full_run() {
  return std::getenv("OCTAVO_FULL") != nullptr || std::getenv("OCTAVO_LONG") != nullptr;
}

/// Rounds of a loop: `few` in `make test`, `all` in `make test-all`, `many` in `make test-long` (0: as `all`).
[[nodiscard]] inline std::uint64_t rounds(std::uint64_t few, std::uint64_t all, std::uint64_t many = 0) {
  if (std::getenv("OCTAVO_LONG") != nullptr && many > 0) return many;
  return full_run() ? all : few;
}

}  // namespace octavo::testing
