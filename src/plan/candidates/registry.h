// Every choice of the planner by name: its candidates, what it needs, what decides it, and whether it can be disabled or forced. The
// names that --disable and --force accept, the help of both, and docs/rules.md (scripts/rules_page.py) derive from this table. Each
// choice is described by a comment block "// Fusion NAME:" or "// Candidate NAME:" beside the code that makes it.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::plan {

/// One way to do what a choice is about.
/// Choices that code asks for by their names; others are named where they are raised.
inline constexpr std::string_view kPrecision = "precision", kInnerView = "inner-view", kTactics = "tactics", kByImage = "by-image";

struct CandidateInfo {
  std::string_view name;         ///< as decisions, JSON and reports say it: "own-pass"
  std::string_view description;  ///< one clause: "requantized by a pass of its own"
};

struct ChoiceInfo {
  /// `fusion`: done without asking for times. `region_times`: candidates are priced by the regions that differ. `whole_plans`: two
  /// complete plans are compared.
  enum class DecidedBy { fusion, region_times, whole_plans };
  std::string_view name;
  DecidedBy decided_by = DecidedBy::fusion;
  int effort = 0;                           ///< from this effort on it is decided; below, the default stays
  std::string_view needs;                   ///< beside the effort
  bool can_be_forced = false;               ///< --force takes the second candidate wherever it is possible
  std::array<CandidateInfo, 4> candidates;  ///< the default first; unused ones have no name
};

/// In the order of docs/planner.md. Every one can be disabled: its default then stays.
[[nodiscard]] std::span<const ChoiceInfo> choices();
/// Null for a name that is none.
[[nodiscard]] const ChoiceInfo* find_choice(std::string_view name);
/// "requantized by a pass of its own"; the candidate's own name where the table has no description.
[[nodiscard]] std::string_view description_of(std::string_view choice, std::string_view candidate);

/// The names that PlanOptions::disabled (laws and float rules are further ones) and PlanOptions::forced accept.
[[nodiscard]] std::vector<std::string> choice_names();
[[nodiscard]] std::vector<std::string> forceable_choices();

}  // namespace octavo::plan
