// What every step of the planner is given: who can run regions, what the caller asked for, and what regions cost.
#pragma once

#include <string_view>
#include <vector>

#include "base/machine.h"
#include "plan/cost.h"
#include "plan/effort.h"
#include "plan/memo.h"
#include "plan/options.h"
#include "region/provider.h"

namespace octavo::plan {

/// All of it must outlive the planning. Copies are cheap: nothing is owned.
struct PlanContext {
  const std::vector<const region::Provider*>& providers;  ///< in order of preference
  const PlanOptions& options;
  Costs& costs;
  Memo& memo;
  /// Whose times the regions' alternatives say, where `costs` are estimates and choose the tactics. Null: those of `costs`.
  Costs* shown = nullptr;

  [[nodiscard]] bool enabled(std::string_view rule_or_choice) const { return !options.disabled.contains(rule_or_choice); }
  /// "measured" or "estimated": what prices are.
  [[nodiscard]] std::string_view times() const { return costs.source() == CostSource::estimates ? "estimated" : "measured"; }
};

/// The caller's costs where the effort allows to ask them, else the providers' estimates.
[[nodiscard]] inline Costs& costs_of(const PlanOptions& options, Estimates& estimates) {
  return options.costs != nullptr && effort_at(options.effort).measures ? *options.costs : estimates;
}

/// The machine whose caches the planner's thresholds follow: this one where times of it decide, else the standard one.
[[nodiscard]] inline const MachineModel& machine_of(const PlanOptions& options) {
  static constexpr MachineModel standard = standard_machine();
  return effort_at(options.effort).measures ? this_machine() : standard;
}

}  // namespace octavo::plan
