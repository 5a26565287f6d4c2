// How much a fuzz test runs, and from where on. `make test` runs few rounds, `make test-all` (OCTAVO_FULL) all of them, `make test-long` (OCTAVO_LONG) many more.
#pragma once

#include <bit>
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

/// Half of the cases of nested loops in `make test`, all of them in `make test-all`. Of two, four or eight cases that follow one another half are taken, and
/// then the other half (the sequence of Thue and Morse): each value of each loop keeps cases. The first case is taken.
class EveryOther {
 public:
  [[nodiscard]] bool takes() { return (std::popcount(count_++) % 2 == 0) || full_run(); }

 private:
  unsigned count_ = 0;
};

}  // namespace octavo::testing
