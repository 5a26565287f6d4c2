// Reasons are data: a cause and its values. The English sentence of a cause stands in report/sentences.def and nowhere else; whoever
// decides something compares causes and values, never text.
//
// The causes of a module stand in base/causes/MODULE.def, one line a cause: OCTAVO_CAUSE(name, fields). `fields` lists "name:kind" separated
// by blanks; the kinds are those of ValueKind. The name is what plans, engine files and `explain --json` say, so it stays as it is once
// released. base/causes/MODULE.h declares cause::NAME: a new cause compiles those files anew that include its header, and the two that list
// all causes, base/causes.cc and report/sentences.cc.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/out_of_line.h"

namespace octavo {

/// Why something is as it is: a hash of the cause's name.
enum class Cause : std::uint32_t {};

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
  OCTAVO_OUT_OF_LINE(Reason);
  explicit Reason(Cause why, std::vector<ReasonValue> of = {});
  void add(std::int64_t value);
  void add(double value);
  void add(std::string value);
  void add(std::vector<std::string> value);
  friend bool operator==(const Reason& a, const Reason& b);
};
/// Several reasons of one decision, the most important first.
using Reasons = std::vector<Reason>;

namespace detail {

/// FNV-1a. base/causes.cc checks that no two causes have the same.
constexpr Cause cause_named(std::string_view name) {
  std::uint32_t hash = 2166136261U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return static_cast<Cause>(hash);
}

/// FieldsOf<cause>::list: the fields as the cause's line spells them.
template <Cause cause>
struct FieldsOf;

constexpr ValueKind kind_of(std::string_view word) {
  constexpr std::pair<std::string_view, ValueKind> kKinds[] = {
      {"integer", ValueKind::integer}, {"number", ValueKind::number}, {"ratio", ValueKind::ratio}, {"seconds", ValueKind::seconds},
      {"text", ValueKind::text},       {"name", ValueKind::name},     {"names", ValueKind::names}};
  std::size_t i = 0;
  while (kKinds[i].first != word)
    ++i;  // a word that is no kind does not compile: base/causes.cc reads all lines in a constant expression
  return kKinds[i].second;
}

constexpr std::size_t count_fields(std::string_view list) {
  std::size_t n = 0;
  for (const char c : list) n += c == ':' ? 1 : 0;
  return n;
}
constexpr Field field_at(std::string_view list, std::size_t index) {
  for (; index > 0; --index) list.remove_prefix(list.find(' ') + 1);
  list = list.substr(0, list.find(' '));
  const std::size_t colon = list.find(':');
  return {list.substr(0, colon), kind_of(list.substr(colon + 1))};
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

/// What Reason::add takes.
template <class T>
auto value_of(T&& v) {
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

/// A reason: `because<cause::several_readers>(name, 3)`. A wrong number or kind of values does not compile.
template <Cause cause, class... Values>
[[nodiscard]] Reason because(Values&&... values) {
  constexpr std::string_view fields = detail::FieldsOf<cause>::list;
  static_assert(sizeof...(Values) == detail::count_fields(fields), "a value for each field of the cause's line in base/causes/");
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    static_assert((detail::holds<Values>(detail::field_at(fields, i).kind) && ...),
                  "values of the kinds that the cause's line says");
  }
  (std::make_index_sequence<sizeof...(Values)>());
  Reason out(cause);
  (out.add(detail::value_of(std::forward<Values>(values))), ...);
  return out;
}

/// Every cause, module by module.
[[nodiscard]] std::span<const Cause> all_causes();

/// The number of fields of a cause, and field `index` of it. Of a number that is no cause: 0.
[[nodiscard]] std::size_t field_count(Cause cause);
[[nodiscard]] Field field_of(Cause cause, std::size_t index);

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

/// A line of base/causes/MODULE.def as a constant.
#define OCTAVO_DECLARE_CAUSE(name, fields)                  \
  namespace octavo::cause {                                 \
  inline constexpr Cause name = detail::cause_named(#name); \
  }                                                         \
  template <>                                               \
  struct octavo::detail::FieldsOf<octavo::cause::name> {    \
    static constexpr std::string_view list = fields;        \
  };
