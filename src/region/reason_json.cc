#include "region/reason_json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace octavo::region {
namespace {

using nlohmann::json;

json real(double v) {
  if (std::isfinite(v)) return v;
  return json{{"f", std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf"}};
}

std::optional<double> real_of(const json& j) {
  if (j.is_number()) return j.get<double>();
  if (!j.is_object() || j.size() != 1 || !j.contains("f") || !j["f"].is_string()) return std::nullopt;
  const auto& text = j["f"].get_ref<const std::string&>();
  if (text == "nan") return std::nan("");
  if (text == "inf" || text == "-inf") return text == "inf" ? HUGE_VAL : -HUGE_VAL;
  return std::nullopt;
}

std::optional<ReasonValue> value_of(const json& j, ValueKind kind) {
  switch (kind) {
    case ValueKind::integer:
      if (!j.is_number_integer()) return std::nullopt;
      return j.get<std::int64_t>();
    case ValueKind::number:
    case ValueKind::ratio:
    case ValueKind::seconds:
      if (const auto d = real_of(j)) return *d;
      return std::nullopt;
    case ValueKind::text:
    case ValueKind::name:
      if (!j.is_string()) return std::nullopt;
      return j.get<std::string>();
    case ValueKind::names: break;
  }
  if (!j.is_array()) return std::nullopt;
  std::vector<std::string> list;
  for (const json& e : j) {
    if (!e.is_string()) return std::nullopt;
    list.push_back(e.get<std::string>());
  }
  return list;
}

}  // namespace

json to_json(const Reason& reason) {
  json out{{"cause", name_of(reason.cause)}};
  for (std::size_t i = 0; i < reason.values.size(); ++i) {
    const auto field = std::string(field_of(reason.cause, i).name);
    std::visit(
        [&](const auto& v) {
          if constexpr (std::is_same_v<std::decay_t<decltype(v)>, double>) {
            out[field] = real(v);
          } else {
            out[field] = v;
          }
        },
        reason.values[i]);
  }
  return out;
}

json to_json(const Reasons& reasons) {
  json out = json::array();
  for (const Reason& r : reasons) out.push_back(to_json(r));
  return out;
}

Result<Reason> reason_from_json(const json& j) {
  const auto bad = [](std::string what) { return fail(ErrorKind::bad_engine, std::move(what)); };
  if (!j.is_object() || !j.contains("cause") || !j["cause"].is_string()) return bad("a reason has no cause");
  const auto& name = j["cause"].get_ref<const std::string&>();
  const auto cause = find_cause(name);
  if (!cause) return bad(fmt::format("\"{}\" is not a cause", name));
  Reason out(*cause);
  if (j.size() != field_count(*cause) + 1)
    return bad(fmt::format("the reason \"{}\" has {} fields, needs {}", name, j.size() - 1, field_count(*cause)));
  for (std::size_t i = 0; i < field_count(*cause); ++i) {
    const Field field = field_of(*cause, i);
    const auto found = j.find(std::string(field.name));
    auto value = found == j.end() ? std::nullopt : value_of(*found, field.kind);
    if (!value) return bad(fmt::format("the reason \"{}\" has no \"{}\" of the right kind", name, field.name));
    out.values.push_back(*std::move(value));
  }
  return out;
}

}  // namespace octavo::region
