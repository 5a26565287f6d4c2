// The CPU's kernels, one row each.
#pragma once

#include <memory>
#include <vector>

#include "cpu/family.h"

namespace octavo::cpu {

/// Rows that one file makes, for several operators or levels. In static storage.
using Families = std::vector<const Family*>;

// A function a line of table.def.
#define OCTAVO_FAMILY(name) [[nodiscard]] const Family& name##_family();
#define OCTAVO_FAMILIES(name) [[nodiscard]] Families name##_families();
#include "cpu/table.def"
#undef OCTAVO_FAMILY
#undef OCTAVO_FAMILIES

/// All rows, in the order they are asked: of equal rank and estimate, the first is taken.
[[nodiscard]] const Families& table();

/// F(kind) for each of the kinds, which are in static storage.
template <class F, class Kinds>
[[nodiscard]] Families families_of(const Kinds& kinds) {
  static const std::vector<std::unique_ptr<const Family>> made = [&] {
    std::vector<std::unique_ptr<const Family>> out;
    for (const auto& kind : kinds) out.push_back(std::make_unique<F>(kind));
    return out;
  }();
  Families out;
  for (const auto& f : made) out.push_back(f.get());
  return out;
}

}  // namespace octavo::cpu

/// The families `id` of the table: one of `Type` for each kind.
#define OCTAVO_DEFINE_FAMILIES(id, Type, ...) \
  Families id##_families() {                  \
    return families_of<Type>(__VA_ARGS__);    \
  }
