#include "cli/inputs/options.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace octavo::cli {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Result<Shapes> parse_shapes(std::string_view option, std::string_view text) {
  Shapes shapes;
  for (const auto part : split(text, ',')) {
    const auto bad = [&] {
      return fail(ErrorKind::usage,
                  fmt::format("{} {}: \"{}\" is not NAME:DIMxDIMx..., as in image:1x3x224x224", option, text, part));
    };
    const auto colon = part.find_last_of(":=");
    if (colon == std::string_view::npos || colon == 0) return bad();
    ir::Shape shape;
    for (const auto dim : split(part.substr(colon + 1), 'x')) {
      const auto value = number<std::int64_t>(dim);
      if (!value || *value < 1) return bad();
      shape.push_back(*value);
    }
    shapes[std::string(part.substr(0, colon))] = std::move(shape);
  }
  return shapes;
}

Result<std::array<int, 2>> parse_size(std::string_view option, std::string_view text) {
  const auto parts = split(text, 'x');
  std::array<int, 2> size{0, 0};
  bool good = parts.size() <= 2;
  for (std::size_t i = 0; good && i < parts.size(); ++i) {
    const auto value = number<int>(parts[i]);
    good = value && *value >= 1 && *value <= 16384;
    if (good) size[i] = *value;
  }
  if (good) return size;
  return fail(ErrorKind::usage,
              fmt::format("{} {}: not a size such as 224 or 480x640 (height x width, at most 16384)", option, text));
}

Result<std::vector<float>> parse_numbers(std::string_view option, std::string_view text) {
  std::vector<float> values;
  for (const auto part : split(text, ',')) {
    const auto slash = part.find('/');
    const auto top = number<double>(part.substr(0, slash));
    const auto bottom = slash == std::string_view::npos ? std::optional(1.0) : number<double>(part.substr(slash + 1));
    const double value = top && bottom && *bottom != 0 ? *top / *bottom : std::numeric_limits<double>::infinity();
    if (!(std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max()))) {  // the parts may be "nan" and "inf" too
      return fail(ErrorKind::usage, fmt::format("{} {}: \"{}\" is not a number such as 0.5 or 1/255", option, text, part));
    }
    values.push_back(static_cast<float>(value));
  }
  return values;
}

}  // namespace octavo::cli
