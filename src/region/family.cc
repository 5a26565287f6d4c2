#include "region/family.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include "region/refusal.h"

namespace octavo::region {
namespace {

/// A whole number as tactics spell it.
std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || std::to_string(n) != text) return std::nullopt;
  return n;
}

bool is_one_of(std::string_view value, std::string_view values) {
  while (!values.empty()) {
    const std::size_t end = std::min(values.find(", "), values.size());
    const std::string_view one = values.substr(0, end);
    if (const std::size_t dots = one.find(".."); dots != std::string_view::npos) {
      const auto n = number(value), first = number(one.substr(0, dots)), last = number(one.substr(dots + 2));
      if (n && first && last && *first <= *n && *n <= *last) return true;
    } else if (one == value) {
      return true;
    }
    values.remove_prefix(std::min(end + 2, values.size()));
  }
  return false;
}

}  // namespace

bool About::holds(const Region& region) const {
  if (region.stages.size() != 1 || region.stages[0].stores.empty()) return false;
  const Stage& s = region.stages[0];
  if (std::find(ops.begin(), ops.end(), s.anchor.op) == ops.end()) return false;
  return (inputs == 0 || s.anchor.inputs.size() == inputs) &&
         (results == Results::any || s.program.outputs.empty() == (results == Results::raw));
}

Reasons why_not_described(const Parameters& parameters, std::span<const ParameterRow> rows) {
  for (const auto& [name, value] : parameters) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&wanted = name](const ParameterRow& r) { return r.name == wanted; });
    if (row == rows.end()) return unmet("parameter", name, "one that the family has");
    if (!is_one_of(value, row->values)) return unmet(fmt::format("parameter {}", name), value, row->values);
  }
  return {};
}

}  // namespace octavo::region
