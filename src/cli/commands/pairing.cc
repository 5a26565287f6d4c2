#include "cli/commands/pairing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/text.h"

namespace octavo::cli {
namespace {

std::string listed(const std::vector<region::Binding>& bindings) {
  std::vector<std::string> all;
  for (const region::Binding& b : bindings) all.push_back(fmt::format("\"{}\" {}", b.name, ir::to_string(b.type)));
  return fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace

Result<Pairing> pair_up(std::string_view what, const std::vector<region::Binding>& first, const std::string& first_name,
                        const std::vector<region::Binding>& other, const std::string& other_name) {
  Pairing out;
  for (const region::Binding& a : first) {
    const auto at = std::find_if(other.begin(), other.end(), [&](const region::Binding& b) { return b.name == a.name; });
    out.to.push_back(static_cast<std::size_t>(at - other.begin()));
    out.by_position = out.by_position || at == other.end();
  }
  for (std::size_t i = 0; out.by_position && i < out.to.size(); ++i) out.to[i] = i;
  bool same = first.size() == other.size();
  for (std::size_t i = 0; same && i < first.size(); ++i) same = first[i].type == other[out.to[i]].type;
  if (same) return out;
  return fail(ErrorKind::usage, fmt::format("the models have different {}s, and cannot be compared\n  {}: {}\n  {}: {}", what,
                                            first_name, listed(first), other_name, listed(other)));
}

std::string said(std::string_view what, const Pairing& pairing, const std::vector<region::Binding>& first,
                 const std::vector<region::Binding>& other) {
  if (!pairing.by_position) return "";
  std::vector<std::string> all;
  for (std::size_t i = 0; i < first.size(); ++i) all.push_back(fmt::format("{} -> {}", first[i].name, other[pairing.to[i]].name));
  return fmt::format("{}s are matched by position: {}", what, fmt::join(all, ", "));
}

}  // namespace octavo::cli
