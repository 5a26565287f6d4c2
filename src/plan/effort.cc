#include "plan/effort.h"

#include <fmt/format.h>

namespace octavo::plan {

std::string describe_efforts() {
  std::string out;
  for (int first = 0; first <= kMostEffort;) {
    int last = first;
    while (last < kMostEffort && kEfforts[last + 1].help == kEfforts[first].help) ++last;
    const auto named = [](int level) { return fmt::format("{}{}", level, level == kDefaultEffort ? " (default)" : ""); };
    out += fmt::format("{}{}{}: {}", first == 0 ? "" : "; ", named(first), last > first ? " to " + named(last) : "",
                       kEfforts[first].help);
    first = last + 1;
  }
  return out;
}

}  // namespace octavo::plan
