// What families of kernels have in common on every device. A family is one way to compute one kind of region. It reads a region once, in
// `match`, and gets its setting: a plain struct with everything that its kernels need. All other functions take the setting alone, so that
// what is offered, what is packed at build time and what is loaded later cannot disagree.
//
//   match(region, plan, machine, parameters) -> Match<Setting>
//       The setting, or why the region is refused (region/refusal.h). It follows from these arguments, never from addresses, times or what
//       this machine has: an engine that was built elsewhere is matched in the same way. A setting owns what it refers to; tensors of
//       constants share their bytes with the plan, and have none when an engine file is loaded.
//   tactics(setting, machine) -> sets of parameters with their estimates
//       The sets of parameters that are worth a try, the best guess first. Where a setting depends on the parameters, each set is matched
//       again.
//   cost(setting, machine) -> double
//       Estimated seconds. It orders tactics until times were measured.
//   packed_bytes(setting) -> std::vector<std::int64_t>
//       The size of each constant that `pack` makes. The provider compares `pack` and engine files with it: kernels do not look.
//   pack(setting) -> Result<std::vector<ir::Tensor>>
//       Build time: the constants as kernels read them.
//   load(setting, packed) -> Result<std::unique_ptr<Kernel>>, on a device that runs texts emit(setting) -> its text and launches
//       The kernel.
//
// A provider is a table of families, one row each: name, version, parameters, capabilities. The table drives dispatch, tests, benchmarks
// and pages. Each device has its own base class for rows (cpu/family.h, cuda/family.h), as settings depend on the machine there.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/reason.h"
#include "base/result.h"
#include "region/region.h"

namespace octavo::region {

/// Of a tactic (Tactic::parameters): {"tile", "128x64x64"}.
using Parameters = std::map<std::string, std::string>;

/// One parameter of a family, described once. `values`: what it may be, with ", " between alternatives: words, and A..B for the whole
/// numbers from A to B. {"order", "rows, blocks", "..."}, {"pixels", "1..12", "..."}.
/// `minor`: sets of parameters that differ in such alone take nearly the same time, and a search tries few of them.
struct ParameterRow {
  std::string_view name, values, meaning;
  bool minor = false;
};

/// Empty: every parameter has a row, and is one of its values. Otherwise which is not.
[[nodiscard]] Reasons why_not_described(const Parameters& parameters, std::span<const ParameterRow> rows);

/// The kinds of regions that a family is about, where these words are enough: one stage.
struct About {
  enum class Results : std::uint8_t { any, programmed, raw };  ///< raw: the operator's own, which no program reads
  std::vector<ir::Op> ops = {};
  std::size_t inputs = 0;  ///< of the operator; 0: any number
  Results results = Results::any;
  [[nodiscard]] bool holds(const Region& region) const;
};

/// What `match` finds.
template <class Setting>
using Match = Result<Setting>;

}  // namespace octavo::region

/// The family `id` of a device's table, a `Type` of these arguments. In static storage; each device's namespace has its own base class Family.
#define OCTAVO_DEFINE_FAMILY(id, Type, ...) \
  const Family& id##_family() {             \
    static const Type family{__VA_ARGS__};  \
    return family;                          \
  }
