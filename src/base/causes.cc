// Names and fields of all causes.
#include <algorithm>
#include <array>

#include "base/causes/all.h"
#include "base/reason.h"

namespace octavo {
namespace {

struct Row {
  Cause cause;
  std::string_view name, fields;
};
constexpr Row kRows[] = {
#define OCTAVO_CAUSE(name, fields) {cause::name, #name, fields},
#include "base/causes/all.def"
#undef OCTAVO_CAUSE
};

constexpr auto kCauses = [] {
  std::array<Cause, std::size(kRows)> out{};
  std::transform(std::begin(kRows), std::end(kRows), out.begin(), [](const Row& r) { return r.cause; });
  return out;
}();

/// For searching.
constexpr auto kByNumber = [] {
  std::array<const Row*, std::size(kRows)> out{};
  std::transform(std::begin(kRows), std::end(kRows), out.begin(), [](const Row& r) { return &r; });
  std::sort(out.begin(), out.end(), [](const Row* a, const Row* b) { return a->cause < b->cause; });
  return out;
}();

static_assert(std::adjacent_find(kByNumber.begin(), kByNumber.end(),
                                 [](const Row* a, const Row* b) { return a->cause == b->cause; }) == kByNumber.end(),
              "two causes have one name, or names with one hash: rename the newer one");
static_assert(
    [] {
      for (const Row& r : kRows) {
        for (std::size_t i = 0; i < detail::count_fields(r.fields); ++i) (void)detail::field_at(r.fields, i);
      }
      return true;
    }(),
    "every field has a kind");

const Row* row_of(Cause cause) {
  const auto found =
      std::lower_bound(kByNumber.begin(), kByNumber.end(), cause, [](const Row* r, Cause c) { return r->cause < c; });
  return found == kByNumber.end() || (*found)->cause != cause ? nullptr : *found;
}

}  // namespace

std::span<const Cause> all_causes() {
  return kCauses;
}

std::size_t field_count(Cause cause) {
  const Row* row = row_of(cause);
  return row == nullptr ? 0 : detail::count_fields(row->fields);
}

Field field_of(Cause cause, std::size_t index) {
  return detail::field_at(row_of(cause)->fields, index);
}

std::string_view name_of(Cause cause) {
  const Row* row = row_of(cause);
  return row == nullptr ? std::string_view() : row->name;
}

std::optional<Cause> find_cause(std::string_view name) {
  const Row* row = row_of(detail::cause_named(name));
  if (row == nullptr || row->name != name) return std::nullopt;
  return row->cause;
}

}  // namespace octavo
