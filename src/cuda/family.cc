#include "cuda/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace octavo::cuda {
namespace {

/// A number of 1 and more at the beginning of `text`, which goes on behind it; 0: there is none.
int take_number(std::string_view& text) {
  int v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return error == std::errc() && v > 0 ? v : 0;
}

std::vector<std::string_view> split(std::string_view words) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0;;) {
    const std::size_t end = words.find('|', at);
    out.push_back(words.substr(at, end - at));
    if (end == std::string_view::npos) return out;
    at = end + 1;
  }
}

}  // namespace

bool Target::starts_early() const {
  constexpr int kFirst = 90;
  return architecture.sm >= kFirst;
}

std::string detail::spell_parameter(const ParameterRow& row, std::span<const int> parts) {
  if (!row.values.empty()) {
    const auto words = split(row.values);
    const auto which = static_cast<std::size_t>(parts[0]);
    return which < words.size() ? std::string(words[which]) : std::string();
  }
  return fmt::format("{}", fmt::join(parts, "x"));
}

bool detail::parse_parameter(const ParameterRow& row, const Parameters& parameters, std::span<int> parts) {
  const auto at = parameters.find(std::string(row.name));
  std::string_view text = at == parameters.end() ? std::string_view() : std::string_view(at->second);
  if (!row.values.empty()) {
    const auto words = split(row.values);
    const auto word = std::find(words.begin(), words.end(), text);
    parts[0] = static_cast<int>(word - words.begin());
    return word != words.end();
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) {
      if (!text.starts_with('x')) return false;
      text.remove_prefix(1);
    }
    if (parts[i] = take_number(text); parts[i] == 0) return false;
  }
  return text.empty();
}

Error detail::not_parameters(std::string_view family, const Parameters& parameters, std::span<const ParameterRow> rows) {
  std::string given, wanted;
  for (const auto& [name, value] : parameters) given += fmt::format("{}{}={}", given.empty() ? "" : " ", name, value);
  for (const ParameterRow& r : rows) {
    wanted += fmt::format("\n  {}: {}", r.name, r.meaning);
    if (!r.values.empty()) wanted += fmt::format(" ({})", r.values);
  }
  return {ErrorKind::bad_input, fmt::format("{}: parameters \"{}\" are not what it takes:{}", family, given,
                                            wanted.empty() ? std::string(" none") : wanted)};
}

Reasons Family::why_not(const region::Region& region, const region::Plan& plan, const Target& target) const {
  return refusal_of(matched(region, plan, target));
}

std::vector<EstimatedTactic> Family::candidates(const region::Region& region, const region::Plan& plan,
                                                const Target& target) const {
  const auto m = matched(region, plan, target);
  return m ? (*m)->tactics() : std::vector<EstimatedTactic>();
}

Result<KernelText> Family::emit(const region::Region& region, const region::Plan& plan, const Parameters& parameters,
                                const Target& target) const {
  OCTAVO_TRY(const auto m, matched(region, plan, target));
  return m->emit(parameters);
}

}  // namespace octavo::cuda
