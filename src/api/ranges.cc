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

using ir::Ranges;

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
    const auto [at, fresh] = out.emplace(tensor, ir::symmetric(scale));
    if (const float before = at->second.scale[0]; !fresh && before != scale)
      return bad(fmt::format("gives the tensor another scale than before: {} and {}", before, scale));
  }
  return out;
}

using Json = nlohmann::json;

/// What one entry says, or what is wrong with it.
tl::expected<ir::Quantizer, std::string> range_in(const Json& entry) {
  const auto wrong = [](std::string what) { return tl::unexpected<std::string>(std::move(what)); };
  const auto finite = [](const Json& number) {
    return number.is_number() && std::abs(number.get<double>()) <= std::numeric_limits<float>::max();
  };
  const bool object = entry.is_object();
  if (object && entry.contains("scale")) {
    const Json& scale = entry["scale"];
    const Json zero = entry.value("zero_point", Json(0)), type = entry.value("type", Json("u8"));
    if (type != "u8" && type != "s8") return wrong("the type is neither u8 nor s8");
    if (!finite(scale) || !(scale.get<double>() >= 0)) return wrong("the scale is not a number of float32 that is not negative");
    const auto kind = type == "u8" ? ir::DType::u8 : ir::DType::s8;
    const ir::Quantizer q = ir::per_tensor(kind, scale.get<float>());
    if (!zero.is_number_integer() || zero < q.lo() || zero > q.hi())
      return wrong(fmt::format("the zero point is none of the codes {} to {}", q.lo(), q.hi()));
    return ir::per_tensor(kind, scale.get<float>(), zero.get<std::int32_t>());
  }
  const bool magnitude = entry.is_number() || (object && entry.contains("amax"));
  if (magnitude) {
    const Json& amax = object ? entry["amax"] : entry;
    if (!finite(amax)) return wrong("not a number of float32");
    if (!(amax.get<double>() >= 0)) return wrong("a largest magnitude must not be negative");
    return ir::symmetric(
        static_cast<float>(amax.get<double>() / 127.0));  // in double: 127 times a float32 scale comes back to the last bit
  }
  const bool list = entry.is_array() && entry.size() == 2, ends = object && entry.contains("min") && entry.contains("max");
  if (!list && !ends) return wrong("not a range");
  const Json &lo = list ? entry[0] : entry["min"], &hi = list ? entry[1] : entry["max"];
  if (!finite(lo) || !finite(hi)) return wrong("not two numbers of float32");
  if (!(lo.get<double>() <= hi.get<double>())) return wrong("the least is larger than the largest");
  if (lo.get<double>() == 0 && hi.get<double>() == 0) return ir::symmetric(0);  // no usable range
  return ir::covering(lo.get<double>(), hi.get<double>());
}

Result<Ranges> parse_json(std::string_view text, const std::string& name) {
  const auto json = Json::parse(text, nullptr, false);
  const auto bad = [&](const std::string& what) {
    return fail(ErrorKind::bad_input,
                fmt::format("ranges \"{}\": {}\n  give an object {{tensor name: range}}, where a range is the "
                            "largest absolute value, [least, largest], or {{\"scale\": ..., \"zero_point\": ...}}",
                            name, what));
  };
  if (json.is_discarded()) return bad("not JSON, and not a TensorRT calibration table (those begin with TRT-)");
  if (!json.is_object()) return bad("not a JSON object");
  Ranges out;
  for (const auto& [tensor, entry] : json.items()) {
    auto range = range_in(entry);
    if (!range)
      return bad(
          fmt::format("\"{}\" is {}: {}", tensor, entry.dump(-1, ' ', false, Json::error_handler_t::replace), range.error()));
    out[tensor] = std::move(*range);
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
