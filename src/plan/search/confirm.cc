#include "plan/search/confirm.h"

#include <map>
#include <optional>
#include <set>
#include <string>

#include "plan/candidates/registry.h"
#include "plan/effort.h"
#include "plan/search/choose.h"
#include "plan/search/whole_runs.h"

namespace octavo::plan {
namespace {

using Names = std::set<std::string>;  // of choices

struct Trial {
  Realized made;
  Selection selection;
  WholeRuns times;  ///< against the default plan
};

class Confirmer {
 public:
  Confirmer(const ir::Graph& normalized, const PlanContext& context, Searched& searched)
      : g_(normalized), context_(context), s_(searched) {}

  Status run() {
    OCTAVO_CHECK(finish(s_.best.plan, context_));
    if (!effort_at(context_.options.effort).compares_plans || !s_.changed) return {};
    OCTAVO_CHECK(finish(s_.defaults.plan, context_));
    OCTAVO_TRY(const auto all, run_in_turn(s_.defaults.plan, s_.best.plan, context_));
    if (!all || all->faster()) return {};  // nothing to measure with, or confirmed
    Names names, kept;
    for (const Taken& t : s_.taken) names.insert(t.choice);
    std::optional<Trial> best;
    std::string single;
    if (names.size() > 1) {
      for (const std::string& name : names) {
        OCTAVO_TRY(auto one, trial({name}));
        times_[name] = one.times;
        if (!one.times.faster()) continue;
        kept.insert(name);
        if (!best || one.times.better_than(best->times)) best = std::move(one), single = name;
      }
    }
    if (kept.size() > 1) {
      OCTAVO_TRY(auto some, trial(kept));
      if (best->times.better_than(some.times)) {
        kept = {single};
      } else {
        best = std::move(some);
      }
    }
    take_back_all_but(kept, *all);
    s_.best_selection = best ? std::move(best->selection) : s_.default_selection;
    s_.best = best ? std::move(best->made) : std::move(s_.defaults);
    s_.best_seconds = s_.default_seconds * (best ? best->times.other / best->times.base : 1);
    s_.changed = best.has_value();
    return {};
  }

 private:
  /// The plan with what was taken of these choices alone.
  Result<Trial> trial(const Names& names) {
    Selection selection = s_.default_selection;
    for (const Taken& t : s_.taken) {
      if (names.contains(t.choice)) t.apply(selection);
    }
    Trial out;
    OCTAVO_TRY(out.made, realize(g_, selection, context_));
    out.selection = std::move(selection);
    OCTAVO_CHECK(finish(out.made.plan, context_));
    OCTAVO_TRY(const auto times, run_in_turn(s_.defaults.plan, out.made.plan, context_));
    if (!times) return fail(ErrorKind::internal, "comparing plans: the first comparison had times, a later one has none");
    out.times = *times;
    return out;
  }

  void take_back_all_but(const Names& kept, const WholeRuns& all) {
    for (region::Decision& d : s_.decisions) {
      if (d.choice == kPrecision || d.choice == kInnerView || kept.contains(d.choice)) continue;
      const auto own = times_.find(d.choice);
      take_back(d, 0, own == times_.end() ? all : own->second);
    }
  }

  const ir::Graph& g_;
  const PlanContext& context_;
  Searched& s_;
  std::map<std::string, WholeRuns> times_;  ///< of one choice alone, against the default plan
};

}  // namespace

Status confirm(const ir::Graph& normalized, const PlanContext& context, Searched& searched) {
  return Confirmer(normalized, context, searched).run();
}

}  // namespace octavo::plan
