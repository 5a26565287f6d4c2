#include "plan/search/confirm.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <string>

#include "plan/search/margins.h"

namespace octavo::plan {
namespace {

using Kinds = std::set<std::string>;

struct Trial {
  Realized made;
  Costs::Pair times;
  [[nodiscard]] bool pays() const { return times.second < kWhole * times.first; }
};

class Confirmer {
 public:
  Confirmer(const ConfirmWork& work, Searched& searched) : work_(work), s_(searched) {}

  Status run() {
    OCTAVO_CHECK(work_.finish(s_.best));
    if (work_.options.effort < 2 || !s_.changed) return {};
    OCTAVO_CHECK(work_.finish(s_.defaults));
    OCTAVO_TRY(const auto all, work_.costs.compare(s_.defaults.plan, s_.best.plan));
    if (!all || all->second < kWhole * all->first) return {};  // nothing to measure with, or confirmed
    Kinds kinds, kept;
    for (const Taken& t : s_.taken) kinds.insert(t.kind);
    std::optional<Trial> best;
    if (kinds.size() > 1) {
      for (const std::string& kind : kinds) {
        OCTAVO_TRY(auto one, trial({kind}));
        times_[kind] = one.times;
        if (!one.pays()) continue;
        kept.insert(kind);
        if (!best || one.times.second * best->times.first < best->times.second * one.times.first)
          best = std::move(one), single_ = kind;
      }
    }
    if (kept.size() > 1) {
      OCTAVO_TRY(auto some, trial(kept));
      if (some.times.second * best->times.first <= best->times.second * some.times.first) {
        best = std::move(some);
      } else {
        kept = {single_};
      }
    }
    take_back(kept, *all);
    s_.best = best ? std::move(best->made) : std::move(s_.defaults);
    s_.best_seconds = s_.default_seconds * (best ? best->times.second / best->times.first : 1);
    s_.changed = best.has_value();
    return {};
  }

 private:
  Result<Trial> trial(const Kinds& kinds) {
    Choices choices = s_.default_choices;
    for (const Taken& t : s_.taken) {
      if (kinds.contains(t.kind)) t.apply(choices);
    }
    Trial out;
    OCTAVO_TRY(out.made, realize(work_.normalized, choices, work_.providers, work_.options));
    OCTAVO_CHECK(work_.finish(out.made));
    OCTAVO_TRY(const auto times, work_.costs.compare(s_.defaults.plan, out.made.plan));
    if (!times) return fail(ErrorKind::internal, "comparing plans: the first comparison had times, a later one has none");
    out.times = *times;
    return out;
  }

  void take_back(const Kinds& kept, const Costs::Pair& all) {
    for (region::Decision& d : s_.decisions) {
      if (d.kind == "precision" || d.kind == "inner-view" || d.chosen == d.answers[0].name || kept.contains(d.kind)) continue;
      const auto own = times_.find(d.kind);
      const Costs::Pair& t = own == times_.end() ? all : own->second;
      d.reason = fmt::format("\"{}\" was cheaper by parts, but the whole plan was not: {:.4g} us against {:.4g} us", d.chosen,
                             t.second * 1e6, t.first * 1e6);
      d.chosen = d.answers[0].name;
    }
  }

  const ConfirmWork& work_;
  Searched& s_;
  std::map<std::string, Costs::Pair> times_;  ///< of one kind alone, against the default choices
  std::string single_;
};

}  // namespace

Status confirm(const ConfirmWork& work, Searched& searched) {
  return Confirmer(work, searched).run();
}

}  // namespace octavo::plan
