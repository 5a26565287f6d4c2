#include "cuda/text/open.h"

#include <fmt/format.h>

namespace octavo::cuda {

std::string OpenNumbers::put(Extent e, std::string_view suffix) {
  if (!e.open) return fmt::format("{}{}", e.value, suffix);
  std::string name = fmt::format("open{}", values_.size());  // no family calls a parameter so
  parameters_.emplace_back(suffix == "ll" || suffix == "LL" ? "long long"
                           : suffix == "ull"                ? "unsigned long long"
                           : suffix == "u"                  ? "unsigned"
                                                            : "int",
                           name);
  values_.push_back(e.value);
  return name;
}

void OpenNumbers::name(std::string_view name, std::int64_t value, std::string_view type) {
  parameters_.emplace_back(type, name);
  values_.push_back(value);
}

std::string OpenNumbers::parameters() const {
  std::string out;
  for (const auto& [type, name] : parameters_) out += fmt::format(", {} {}", type, name);
  return out;
}

std::string OpenNumbers::passed() const {
  std::string out;
  for (const auto& [type, name] : parameters_) out += ", " + name;
  return out;
}

void OpenNumbers::add_to(Launch& launch) const {
  for (const std::int64_t v : values_) launch.arguments.push_back({Argument::Kind::number, 0, v});
}

std::string text_for(std::string_view text, bool open) {
  std::string out;
  for (;;) {
    const std::size_t begin = text.find('@');
    out += text.substr(0, begin);
    if (begin == std::string_view::npos) return out;
    text.remove_prefix(begin);
    const bool closed_part = text.starts_with("@closed{"), open_part = text.starts_with("@open{");
    if (!closed_part && !open_part) {  // another mark
      out += '@';
      text.remove_prefix(1);
      continue;
    }
    text.remove_prefix(text.find('{') + 1);
    const std::size_t end = text.find("}@");
    if (open_part == open) out += text.substr(0, end);
    text.remove_prefix(end + 2);
  }
}

}  // namespace octavo::cuda
