// How much a fuzz test runs, and from where on. `make test` runs few rounds, `make test-all` (OCTAVO_FULL) all of them, `make test-long` (OCTAVO_LONG) many more.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>

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

/// Half of the cases of nested loops in `make test`, all of them in `make test-all`. `takes` gets what the case is made of: the values of the loops, and which
/// of the cases of one turn it is. Of cases that follow one another about half are taken, in the order of the sequence of Thue and Morse; and each case with a value
/// that no case before it was taken for, at the same place of the list, so that no value is left out. The first case is taken.
class EveryOther {
 public:
  template <class... Values>
  [[nodiscard]] bool takes(const Values&... values) {
    static_assert(sizeof...(values) > 0, "a value that is not named may be left out");
    std::size_t place = 0;
    const std::pair<std::size_t, std::size_t> named[] = {{place++, key(values)}...};
    const bool fresh = std::any_of(std::begin(named), std::end(named), [&](const auto& v) { return seen_.count(v) == 0; });
    const bool half = std::popcount(count_++) % 2 == 0;
    if (!half && !fresh && !full_run()) return false;
    seen_.insert(std::begin(named), std::end(named));
    return true;
  }

 private:
  template <class Value>
  static std::size_t key(const Value& v) {
    if constexpr (std::is_enum_v<Value>) {
      return static_cast<std::size_t>(v);
    } else if constexpr (std::is_convertible_v<Value, std::string_view>) {
      return std::hash<std::string_view>()(v);
    } else {
      return std::hash<Value>()(v);
    }
  }
  std::set<std::pair<std::size_t, std::size_t>> seen_;  ///< place and value of what was taken
  unsigned count_ = 0;
};

}  // namespace octavo::testing
