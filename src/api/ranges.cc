#include "api/ranges.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/read_file.h"

namespace octavo::api {
namespace {

using Ranges = std::map<std::string, float>;

Result<Ranges> parse_table(std::string_view text, const std::string& name) {
  Ranges out;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (++number == 1 || line.empty()) continue;
    const auto bad = [&](std::string_view what) {
      return fail(ErrorKind::bad_input,
                  fmt::format("calibration table \"{}\" line {}: \"{}\" {}\n  a line is: tensor name, colon, space, "
                              "1 to 8 hexadecimal digits: the bits of the float32 scale",
                              name, number, line, what));
    };
    const std::size_t colon = line.rfind(": ");  // names may hold ": " themselves
    if (colon == std::string_view::npos || colon == 0) return bad("has no \": \" behind a name");
    const std::string_view digits = line.substr(colon + 2);
    std::uint32_t bits = 0;
    const auto [stop, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), bits, 16);
    if (digits.empty() || digits.size() > 8 || problem != std::errc() || stop != digits.data() + digits.size()) {
      return bad("does not end in 1 to 8 hexadecimal digits");
    }
    const float scale = std::bit_cast<float>(bits);
    if (std::isnan(scale) || scale < 0) return bad(fmt::format("is the scale {}, must not be negative", scale));
    const std::string tensor(line.substr(0, colon));
    const auto [at, fresh] = out.emplace(tensor, scale);
    if (!fresh && at->second != scale)
      return bad(fmt::format("gives the tensor another scale than before: {} and {}", at->second, scale));
  }
  return out;
}

Result<Ranges> parse_json(std::string_view text, const std::string& name) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto bad = [&](const std::string& what) {
    return fail(ErrorKind::bad_input,
                fmt::format("ranges \"{}\": {}\n  give an object {{tensor name: largest absolute value}}", name, what));
  };
  if (json.is_discarded()) return bad("not JSON, and not a TensorRT calibration table (those begin with TRT-)");
  if (!json.is_object()) return bad("not a JSON object");
  Ranges out;
  for (const auto& [tensor, entry] : json.items()) {
    const auto& amax = entry.is_object() && entry.contains("amax") ? entry["amax"] : entry;
    if (!amax.is_number()) return bad(fmt::format("\"{}\" is {}, not a number", tensor, amax.dump()));
    const double value = amax.get<double>();
    if (!(value >= 0)) return bad(fmt::format("\"{}\" is {}, must not be negative", tensor, value));
    if (value > std::numeric_limits<float>::max()) return bad(fmt::format("\"{}\" is {}, beyond float32", tensor, value));
    out[tensor] = static_cast<float>(value / 127.0);  // in double: 127 times a float32 scale comes back to the last bit
  }
  return out;
}

}  // namespace

Result<Ranges> parse_ranges(std::string_view text, const std::string& name) {
  return text.starts_with("TRT-") ? parse_table(text, name) : parse_json(text, name);
}

Result<Ranges> read_ranges(const std::string& path) {
  OCTAVO_TRY(const std::string text, read_text(path, "ranges"));
  return parse_ranges(text, path);
}

}  // namespace octavo::api
