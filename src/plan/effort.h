// How hard a build looks for the fastest plan: one row a level. Everything that depends on the effort is a column of this table; no other
// file compares levels (scripts/check_modules.py). `octavo build --help`, `explain` and the table of docs/planner.md
// (scripts/effort_page.py) read their texts here.
#pragma once

#include <iterator>
#include <string>
#include <string_view>

namespace octavo::plan {

/// How combinations of candidates are searched. `greedy`: those that pay alone, best first; the sum is priced again for each.
/// `components`: candidates that touch a common region form a component; all its combinations, or Effort::beam prefixes at a time.
enum class Combine { greedy, components };

inline constexpr int kNoBound = 1 << 20;

/// scripts/effort_page.py makes a line of its table of each column: the comment is its text.
struct Effort {
  /// in short
  std::string_view help;
  /// regions have times of this machine, measured or from the timing cache; otherwise estimates for a standard machine
  bool measures = true;
  /// every choice of the default plan is priced; otherwise only those that depend on the network on this device
  bool searches = false;
  /// whole plans run in turn: the searched plan must beat the default plan, and measured tactics the estimated ones
  bool compares_plans = false;
  /// choices that are priced, at most
  int choices = 96;
  /// choices about tensors that stay in cache anyway are priced too
  bool small_choices = false;
  /// combinations of candidates
  Combine combine = Combine::greedy;
  /// combinations that are kept of a component of more than 6 candidates
  int beam = 0;
  /// seconds for which a tactic is timed
  double tactic_seconds = 4e-3;
  /// runs of each plan, where whole plans run in turn
  int plan_runs = 15;
  /// tactics whose estimate is more than so many times the least are not timed (0: all are)
  double cost_limit = 4;
  /// further parameters of the same kernels are timed
  bool variants = false;
  /// on a GPU: sets of parameters of a kernel family that are compiled for a region, at most
  int sets = 1;
  /// on a GPU: kernels for regions that only other plans than the default have, at most; two of each family in any case
  int other_kernels = 0;
  /// on a GPU: seconds for compiling the kernels of the default plan, at most (0: no bound)
  double first_seconds = 0;
  /// on a GPU: kernels that are compiled for a region of the default plan whatever those seconds are
  int fewest_sets = 8;
};

inline constexpr int kFewestOtherSets = 2;  ///< whatever other_kernels says

// clang-format off
inline constexpr Effort kEfforts[] = {
    {.help = "estimates", .measures = false},
    {.help = "kernels are measured", .sets = 8, .first_seconds = 10, .fewest_sets = 3},
    {.help = "plans are searched too", .searches = true, .compares_plans = true, .sets = 12, .other_kernels = 400},
    {.help = "plans are searched too", .searches = true, .compares_plans = true, .choices = 400, .combine = Combine::components, .beam = 2,
     .tactic_seconds = 15e-3, .cost_limit = 0, .variants = true, .sets = 24, .other_kernels = 1200, .first_seconds = 120},
    {.help = "plans are searched too", .searches = true, .compares_plans = true, .choices = kNoBound, .small_choices = true, .combine = Combine::components, .beam = 4,
     .tactic_seconds = 30e-3, .cost_limit = 0, .variants = true, .sets = 48, .other_kernels = 4000, .first_seconds = 600},
    {.help = "plans are searched too", .searches = true, .compares_plans = true, .choices = kNoBound, .small_choices = true, .combine = Combine::components, .beam = 8,
     .tactic_seconds = 100e-3, .cost_limit = 0, .variants = true, .sets = kNoBound, .other_kernels = kNoBound},
};
// clang-format on

inline constexpr int kEstimates = 0;      ///< the level at which nothing is measured: the same plan on every machine
inline constexpr int kDefaultEffort = 2;  ///< of the command, Python and octavo/octavo.h
inline constexpr int kMostEffort = static_cast<int>(std::size(kEfforts)) - 1;
static_assert(!kEfforts[kEstimates].measures);

/// The row of a level; a level outside the table has the nearest row.
[[nodiscard]] constexpr const Effort& effort_at(int level) {
  return kEfforts[level < 0 ? 0 : level > kMostEffort ? kMostEffort : level];
}
[[nodiscard]] constexpr bool is_effort(int level) {
  return level >= 0 && level <= kMostEffort;
}
/// The first level that has a property: "from effort 2 on".
[[nodiscard]] constexpr int first_effort(bool Effort::*property) {
  int level = 0;
  while (!(kEfforts[level].*property)) ++level;
  return level;
}

/// "0: estimates; 1: kernels are measured; 2 (default) to 5: plans are searched too".
[[nodiscard]] std::string describe_efforts();

}  // namespace octavo::plan
