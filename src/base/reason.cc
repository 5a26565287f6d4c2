#include "base/reason.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

namespace octavo {

OCTAVO_DEFINE_OUT_OF_LINE(Reason);

Reason::Reason(Cause why, std::vector<ReasonValue> of) : cause(why), values(std::move(of)) {}

void Reason::add(std::int64_t value) {
  values.emplace_back(value);
}

void Reason::add(double value) {
  values.emplace_back(value);
}

void Reason::add(std::string value) {
  values.emplace_back(std::move(value));
}

void Reason::add(std::vector<std::string> value) {
  values.emplace_back(std::move(value));
}

bool operator==(const Reason& a, const Reason& b) {
  return a.cause == b.cause && a.values == b.values;
}

double detail::shortest(float value) {
  const std::string text = fmt::format("{}", value);
  double out = value;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

bool well_formed(const Reason& reason) {
  if (name_of(reason.cause).empty() || reason.values.size() != field_count(reason.cause)) return false;
  for (std::size_t i = 0; i < reason.values.size(); ++i) {
    const ReasonValue& v = reason.values[i];
    switch (field_of(reason.cause, i).kind) {
      case ValueKind::integer:
        if (!std::holds_alternative<std::int64_t>(v)) return false;
        break;
      case ValueKind::number:
      case ValueKind::ratio:
      case ValueKind::seconds:
        if (!std::holds_alternative<double>(v)) return false;
        break;
      case ValueKind::text:
      case ValueKind::name:
        if (!std::holds_alternative<std::string>(v)) return false;
        break;
      case ValueKind::names:
        if (!std::holds_alternative<std::vector<std::string>>(v)) return false;
        break;
    }
  }
  return true;
}

std::string spelled(const Reasons& reasons) {
  std::string out;
  for (const Reason& r : reasons) {
    std::string one(name_of(r.cause));
    std::replace(one.begin(), one.end(), '_', ' ');
    for (std::size_t i = 0; i < r.values.size(); ++i) {
      one += fmt::format("{} {} ", i == 0 ? ":" : ",", field_of(r.cause, i).name);
      if (const auto* n = std::get_if<std::int64_t>(&r.values[i])) one += fmt::format("{}", *n);
      if (const auto* d = std::get_if<double>(&r.values[i])) one += fmt::format("{}", *d);
      if (const auto* s = std::get_if<std::string>(&r.values[i])) one += *s;
      if (const auto* list = std::get_if<std::vector<std::string>>(&r.values[i])) one += fmt::format("{}", fmt::join(*list, " "));
    }
    out += (out.empty() ? "" : "; ") + one;
  }
  return out;
}

bool has(const Reasons& reasons, Cause cause) {
  return std::any_of(reasons.begin(), reasons.end(), [&](const Reason& r) { return r.cause == cause; });
}

void add(Reasons& reasons, std::optional<Reason> reason) {
  if (reason) reasons.push_back(*std::move(reason));
}

void add(Reasons& reasons, const Reasons& more) {
  reasons.insert(reasons.end(), more.begin(), more.end());
}

}  // namespace octavo
