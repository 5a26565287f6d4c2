#include "report/sentences.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/causes/all.h"

namespace octavo::report {
namespace {

struct Sentence {
  Cause cause;
  std::string_view text;
};
constexpr Sentence kSentences[] = {
#define OCTAVO_SENTENCE(name, text) {cause::name, text},
#include "report/sentences.def"
};

constexpr Cause kCauses[] = {
#define OCTAVO_CAUSE(name, fields) cause::name,
#include "base/causes/all.def"
#undef OCTAVO_CAUSE
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < std::size(kSentences); ++i) {
    if (i >= std::size(kCauses) || kSentences[i].cause != kCauses[i]) return false;
  }
  return std::size(kSentences) == std::size(kCauses);
}
static_assert(in_order(), "report/sentences.def has one sentence for each cause of base/causes/all.def, in the same order");

/// What people call an operator: a view is the model's QuantizeLinear and DequantizeLinear.
std::string operators(std::vector<std::string> names) {
  std::replace(names.begin(), names.end(), std::string("view"), std::string("quantize"));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string shown(ValueKind kind, const ReasonValue& v) {
  if (const auto* i = std::get_if<std::int64_t>(&v)) return fmt::format("{}", *i);
  if (const auto* list = std::get_if<std::vector<std::string>>(&v)) return fmt::format("{}", fmt::join(*list, ", "));
  if (const auto* s = std::get_if<std::string>(&v)) {
    if (kind != ValueKind::name) return *s;
    return s->empty() ? "without a name" : fmt::format("\"{}\"", *s);
  }
  const double d = std::get<double>(v);
  if (kind == ValueKind::seconds) return fmt::format("{:.4g} us", d * 1e6);
  return kind == ValueKind::ratio ? fmt::format("{:.4g}", d) : fmt::format("{}", d);
}

}  // namespace

std::string_view sentence_of(Cause cause) {
  const auto found =
      std::find_if(std::begin(kSentences), std::end(kSentences), [&](const Sentence& s) { return s.cause == cause; });
  return found == std::end(kSentences) ? std::string_view() : found->text;
}

std::string sentence(const Reason& reason) {
  const std::string_view text = sentence_of(reason.cause);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t open = text.find('{', at), close = text.find('}', open);
    out += text.substr(at, open - at);
    if (open == std::string_view::npos) break;
    const std::string_view name = text.substr(open + 1, close - open - 1);
    for (std::size_t i = 0; i < reason.values.size(); ++i) {
      const Field field = field_of(reason.cause, i);
      if (field.name != name) continue;
      const auto* list = std::get_if<std::vector<std::string>>(&reason.values[i]);
      out += list != nullptr && name == "ops" ? operators(*list) : shown(field.kind, reason.values[i]);
    }
    at = close + 1;
  }
  return out;
}

std::string sentences(const Reasons& reasons) {
  std::string out;
  for (const Reason& r : reasons) out += (out.empty() ? "" : out.ends_with(':') ? " " : "; ") + sentence(r);
  return out;
}

std::string described(const region::Alternative& tactic) {
  const std::string why = sentences(tactic.reasons);
  if (has(tactic.reasons, cause::tactic_refused)) return why;
  if (tactic.seconds >= 0) return fmt::format("{}, measured {:.4g} us", why, tactic.seconds * 1e6);
  if (tactic.estimate >= 0) return fmt::format("{}, estimate {:.4g} us", why, tactic.estimate * 1e6);
  return why + ", not timed at this effort";
}

}  // namespace octavo::report
