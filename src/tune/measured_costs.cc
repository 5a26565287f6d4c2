#include "tune/measured_costs.h"

#include <fmt/format.h>

#include <algorithm>

#include "region/key.h"
#include "tune/measure.h"

namespace octavo::tune {
namespace {

double seconds_each(int effort) {
  return effort <= 2 ? 4e-3 : effort == 3 ? 15e-3 : effort == 4 ? 30e-3 : 100e-3;
}

int compiled_of_family(int effort) {
  constexpr int kByEffort[] = {1, 8, 12, 24, 48, 1 << 20};
  return kByEffort[std::clamp(effort, 0, 5)];
}

constexpr double kLeftOut = 4;  // times the least estimate: at low effort such a tactic is not tried

/// Kernels without vectors, and the evaluator: timed only when nothing else runs the region.
bool slow(const region::Tactic& tactic) {
  return tactic.reference || !tactic.vector;
}

}  // namespace

Result<std::vector<plan::TacticTime>> MeasuredCosts::price(const region::Region& region, const region::Plan& plan,
                                                           const std::vector<region::Offer>& offers) {
  const std::string key = region::key(region, plan);
  const Where where = at(plan.threads);
  if (const auto found = answered_.find({plan.threads, key}); found != answered_.end() && found->second.size() == offers.size())
    return found->second;
  std::vector<plan::TacticTime> times(offers.size());
  std::vector<Candidate> missing;
  std::vector<std::size_t> slots;
  const bool fast =
      std::any_of(offers.begin(), offers.end(), [](const region::Offer& o) { return o.refusal.empty() && !slow(o.tactic); });
  const auto pin = cache_.pinned(where, key);  // never left out
  const std::vector<char> first = among_first(region, offers);
  double least = -1;
  for (const region::Offer& o : offers) {
    if (o.refusal.empty() && o.cost > 0 && (least < 0 || o.cost < least)) least = o.cost;
  }
  for (std::size_t i = 0; i < offers.size(); ++i) {
    if (!offers[i].refusal.empty()) continue;
    const std::string name = offers[i].tactic.name();
    if (const Timing* t = cache_.find(where, key, name); t && usable(*t)) {
      times[i] = {t->seconds, "cache"};
      continue;
    }
    const bool wanted = pin && *pin == name;
    if (!wanted && slow(offers[i].tactic) && fast) continue;
    if (!wanted && first[i] == 0) continue;
    if (!wanted && options_.effort <= 2 && least > 0 && offers[i].cost > kLeftOut * least) continue;
    const auto by =
        std::find_if(providers_.begin(), providers_.end(), [&](const region::Provider* p) { return p->knows(offers[i].tactic); });
    if (by == providers_.end()) continue;
    missing.push_back({offers[i].tactic, *by});
    slots.push_back(i);
  }
  if (!missing.empty() && options_.strict) {
    return fail(
        ErrorKind::usage,
        fmt::format(
            "strict timing: the timing cache has no time for tactic {} of region \"{}\"\n  key: {} | {} threads\n  build once "
            "without strict timing to measure it, or merge a cache that has it",
            missing[0].tactic.name(), region.name, key, plan.threads));
  }
  if (!missing.empty()) {
    OCTAVO_TRY(const auto seconds, measure(region, plan, missing, seconds_each(options_.effort), options_.devices));
    for (std::size_t k = 0; k < missing.size(); ++k) {
      if (seconds[k].seconds < 0) continue;
      const std::string name = missing[k].tactic.name();
      remember(where, key, name, seconds[k].seconds, seconds[k].disturbed);
      times[slots[k]] = {cache_.find(where, key, name)->seconds, "measured"};
    }
  }
  for (std::size_t i = 0; i < offers.size(); ++i) say(key, offers[i].tactic.name(), times[i]);
  answered_[{plan.threads, key}] = times;
  return times;
}

/// On another device than the host every tactic is compiled before it is timed, which is most of the cost: of each family only as many
/// sets of parameters count, in the provider's order, as the effort allows.
std::vector<char> MeasuredCosts::among_first(const region::Region& region, const std::vector<region::Offer>& offers) const {
  std::vector<char> out(offers.size(), 1);
  if (region.device == region::kHost) return out;
  std::map<std::string, int> taken;
  for (std::size_t i = 0; i < offers.size(); ++i) {
    if (offers[i].refusal.empty()) out[i] = taken[offers[i].tactic.family]++ < compiled_of_family(options_.effort) ? 1 : 0;
  }
  return out;
}

/// A time that was disturbed counts for a while, so that builds one after the other agree, and is taken again then.
bool MeasuredCosts::usable(const Timing& t) const {
  return t.seconds >= 0 && (t.disturbed == 0 || options_.strict || now_ - t.disturbed < kDisturbedSeconds);
}

void MeasuredCosts::remember(const Where& where, const std::string& key, const std::string& tactic, double seconds,
                             bool disturbed) {
  const std::int64_t when = disturbed ? now_ : 0;
  cache_.set(where, key, tactic, seconds, when);
  fresh_.set(where, key, tactic, seconds, when);
  ++measured_;
}

void MeasuredCosts::say(const std::string& key, const std::string& tactic, const plan::TacticTime& t) {
  if (!options_.log || t.seconds < 0) return;
  options_.log(fmt::format("timing: {:>9.2f} us {:8} {} | {}", t.seconds * 1e6, t.source, tactic, key));
}

std::optional<std::string> MeasuredCosts::pinned(const region::Region& region, const region::Plan& plan) {
  return cache_.pinned(at(plan.threads), region::key(region, plan));
}

Result<std::optional<plan::Costs::Pair>> MeasuredCosts::compare(const region::Plan& first, const region::Plan& second) {
  const std::string key = fmt::format("plans {} {}", region::plan_hash(first), region::plan_hash(second));
  const Where where = at(region::threads_of(first));
  const Timing* a = cache_.find(where, key, "plan.first");
  const Timing* b = cache_.find(where, key, "plan.second");
  if (!a || !b || a->seconds < 0 || b->seconds < 0) {
    if (options_.strict)
      return fail(ErrorKind::usage, fmt::format("strict timing: the timing cache has no comparison \"{}\"", key));
    OCTAVO_TRY(const PairTime t, measure_pair(first, second, providers_, 15, options_.devices));
    remember(where, key, "plan.first", t.first, false);
    remember(where, key, "plan.second", t.second, false);
    a = cache_.find(where, key, "plan.first");
    b = cache_.find(where, key, "plan.second");
  }
  return Pair{a->seconds, b->seconds};
}

}  // namespace octavo::tune
