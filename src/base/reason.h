// Reasons are data: a cause from one list, and its values. The English sentence of a cause stands in report/sentences.def and nowhere else;
// whoever decides something compares causes and values, never text.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace octavo {

/// Why something is as it is. base/causes.def lists them with their fields.
enum class Cause : std::uint16_t {
#define OCTAVO_CAUSE(name, fields) name,
#include "base/causes.def"
};

/// What a field holds. `integer`: an int64. `number`, `ratio`, `seconds`: a double (a ratio and a time are shown with four digits).
/// `text`: a word of the compiler's own (an operator, a type, a grid, a tactic). `name`: the name of a node or a tensor, shown in
/// quotes. `names`: a list of texts.
enum class ValueKind : std::uint8_t { integer, number, ratio, seconds, text, name, names };

struct Field {
  std::string_view name;
  ValueKind kind = ValueKind::text;
};

using ReasonValue = std::variant<std::int64_t, double, std::string, std::vector<std::string>>;

/// A cause and its values, parallel to the cause's fields. Made by `because`, which checks count and kinds when it is compiled.
struct Reason {
  Cause cause{};
  std::vector<ReasonValue> values;
  friend bool operator==(const Reason&, const Reason&) = default;
};
/// Several reasons of one decision, the most important first.
using Reasons = std::vector<Reason>;

namespace detail {

inline constexpr std::string_view kFieldLists[] = {
#define OCTAVO_CAUSE(name, fields) fields,
#include "base/causes.def"
};

constexpr ValueKind kind_of(std::string_view word) {
  constexpr std::pair<std::string_view, ValueKind> kKinds[] = {
      {"integer", ValueKind::integer}, {"number", ValueKind::number}, {"ratio", ValueKind::ratio}, {"seconds", ValueKind::seconds},
      {"text", ValueKind::text},       {"name", ValueKind::name},     {"names", ValueKind::names}};
  std::size_t i = 0;
  while (kKinds[i].first != word) ++i;  // a word that is no kind does not compile: causes.def is read in constant expressions only
  return kKinds[i].second;
}

/// The shortest decimal that reads back as the same float, as a double.
[[nodiscard]] double shortest(float value);

template <class T>
constexpr bool holds(ValueKind kind) {
  using D = std::remove_cvref_t<T>;
  if constexpr (std::integral<D>) return kind == ValueKind::integer;
  if constexpr (std::floating_point<D>) return kind == ValueKind::number || kind == ValueKind::ratio || kind == ValueKind::seconds;
  if constexpr (std::convertible_to<T, std::string_view>) return kind == ValueKind::text || kind == ValueKind::name;
  return kind == ValueKind::names;
}

template <class T>
ReasonValue value_of(T&& v) {
  using D = std::remove_cvref_t<T>;
  if constexpr (std::integral<D>) {
    return static_cast<std::int64_t>(v);
  } else if constexpr (std::same_as<D, float>) {
    return shortest(v);
  } else if constexpr (std::floating_point<D>) {
    return static_cast<double>(v);
  } else if constexpr (std::convertible_to<T, std::string_view>) {
    return std::string(std::string_view(v));
  } else {
    return std::vector<std::string>(v.begin(), v.end());
  }
}

}  // namespace detail

inline constexpr std::size_t kCauses = std::size(detail::kFieldLists);

/// The number of fields of a cause, and field `index` of it.
[[nodiscard]] constexpr std::size_t field_count(Cause cause) {
  std::size_t n = 0;
  for (const char c : detail::kFieldLists[static_cast<std::size_t>(cause)]) n += c == ':' ? 1 : 0;
  return n;
}
[[nodiscard]] constexpr Field field_of(Cause cause, std::size_t index) {
  std::string_view list = detail::kFieldLists[static_cast<std::size_t>(cause)];
  for (; index > 0; --index) list.remove_prefix(list.find(' ') + 1);
  list = list.substr(0, list.find(' '));
  const std::size_t colon = list.find(':');
  return {list.substr(0, colon), detail::kind_of(list.substr(colon + 1))};
}

/// A reason: `because<Cause::several_readers>(name, 3)`. A wrong number or kind of values does not compile.
template <Cause cause, class... Values>
[[nodiscard]] Reason because(Values&&... values) {
  static_assert(sizeof...(Values) == field_count(cause), "a value for each field of base/causes.def");
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    static_assert((detail::holds<Values>(field_of(cause, i).kind) && ...), "values of the kinds that base/causes.def says");
  }
  (std::make_index_sequence<sizeof...(Values)>());
  Reason out{cause, {}};
  (out.values.push_back(detail::value_of(std::forward<Values>(values))), ...);
  return out;
}

/// "several_readers": the name of a cause in plans, engine files and JSON, and the cause of a name.
[[nodiscard]] std::string_view name_of(Cause cause);
[[nodiscard]] std::optional<Cause> find_cause(std::string_view name);

/// True if the values are as many and of the kinds that the cause asks for. For reasons that come from a file.
[[nodiscard]] bool well_formed(const Reason& reason);

/// The reasons as data are spelled: "capability missing: needs avx2, has portable". For the errors of rooms that do not see the
/// sentences of report/.
[[nodiscard]] std::string spelled(const Reasons& reasons);

/// True if one of the reasons has this cause.
[[nodiscard]] bool has(const Reasons& reasons, Cause cause);

/// Appends, where there is one.
void add(Reasons& reasons, std::optional<Reason> reason);
void add(Reasons& reasons, const Reasons& more);

}  // namespace octavo
