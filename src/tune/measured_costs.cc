#include "tune/measured_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "region/key.h"
#include "tune/measure.h"
#include "tune/part.h"

namespace octavo::tune {
namespace {

constexpr double kPart = 0.5;  // of what a tactic is timed for: a run of a part of a large region

/// Plans that run longer are not run in turn: their regions are far larger than what neighbours share in caches, so the sum of the regions'
/// times is believed. By those times, not by a clock, so that builds with one cache agree.
constexpr double kMostToCompare = 0.12;

double run_seconds(const region::Plan& plan) {
  double sum = 0;
  for (const region::Region& r : plan.regions) sum += std::max(r.seconds, 0.0);
  return sum * static_cast<double>(plan.images) / std::max(plan.lanes, 1);
}

/// Kernels without vectors, and the evaluator: timed only when nothing else runs the region.
bool slow(const region::Tactic& tactic) {
  return tactic.reference || !tactic.vector;
}

const region::Provider* provider_of(const region::Tactic& tactic, const std::vector<const region::Provider*>& providers) {
  const auto by = std::find_if(providers.begin(), providers.end(), [&](const region::Provider* p) { return p->knows(tactic); });
  return by == providers.end() ? nullptr : *by;
}

/// What a region needs of its plan; data are shared.
std::shared_ptr<const region::Plan> without_regions(const region::Plan& plan) {
  auto own = std::make_shared<region::Plan>();
  own->threads = plan.threads, own->devices = plan.devices, own->buffers = plan.buffers, own->inputs = plan.inputs,
  own->outputs = plan.outputs;
  return own;
}

}  // namespace

Result<std::vector<plan::TacticTime>> MeasuredCosts::price(const region::Region& region, const region::Plan& plan,
                                                           const std::vector<region::Offer>& offers) {
  if (first_.empty() && noticed_keys_.empty()) {
    for (const region::Region& r : plan.regions) {
      if (r.device != region::kHost && !region::is_transfer(r, plan)) first_.insert(region::key(r, plan));
    }
  }
  const std::string key = region::key(region, plan);
  const Where where = at(plan.threads);
  if (const auto found = answered_.find({plan.threads, key}); found != answered_.end() && found->second.size() == offers.size())
    return found->second;
  const std::vector<std::size_t> slots = missing(region, plan, offers);
  if (!slots.empty() && options_.strict) {
    return fail(
        ErrorKind::usage,
        fmt::format(
            "strict timing: the timing cache has no time for tactic {} of region \"{}\"\n  key: {} | {} threads\n  build once "
            "without strict timing to measure it, or merge a cache that has it",
            offers[slots[0]].tactic.name(), region.name, key, plan.threads));
  }
  std::vector<plan::TacticTime> times(offers.size());
  for (std::size_t i = 0; i < offers.size(); ++i) {
    const Timing* t = offers[i].refusal.empty() ? cache_.find(where, key, offers[i].tactic.name()) : nullptr;
    if (t != nullptr && usable(*t)) times[i] = {t->seconds, plan::TimeSource::cache};
  }
  if (!slots.empty()) {
    if (!compiled_.contains(key)) compile_ahead(plan);
    std::vector<Candidate> candidates;
    for (const std::size_t i : slots) candidates.push_back({offers[i].tactic, provider_of(offers[i].tactic, providers_)});
    OCTAVO_TRY(const auto seconds, time_part_or_all(region, plan, offers, slots, candidates));
    for (std::size_t k = 0; k < slots.size(); ++k) {
      if (seconds[k].seconds < 0) continue;
      const std::string name = offers[slots[k]].tactic.name();
      remember(where, key, name, seconds[k].seconds, seconds[k].disturbed);
      times[slots[k]] = {cache_.find(where, key, name)->seconds, plan::TimeSource::measured};
    }
  }
  for (std::size_t i = 0; i < offers.size(); ++i) say(key, offers[i].tactic.name(), times[i]);
  answered_[{plan.threads, key}] = times;
  return times;
}

/// Times of the candidates (offers by `slots`). If the region runs long by the estimates, a part of it is timed.
Result<std::vector<TacticSeconds>> MeasuredCosts::time_part_or_all(const region::Region& region, const region::Plan& plan,
                                                                   const std::vector<region::Offer>& offers,
                                                                   const std::vector<std::size_t>& slots,
                                                                   const std::vector<Candidate>& candidates) const {
  const double each = effort_.tactic_seconds;
  double least = -1;
  for (const std::size_t i : slots) {
    if (least < 0 || offers[i].cost < least) least = offers[i].cost;
  }
  if (const auto part = part_of(region, plan, least / std::max(region::threads_of(plan), 1), kPart * each)) {
    OCTAVO_TRY(auto seconds, measure(part->region, part->plan, candidates, each, options_.devices));
    const bool all = std::all_of(seconds.begin(), seconds.end(), [](const TacticSeconds& s) { return s.seconds >= 0; });
    for (TacticSeconds& s : seconds) s.seconds *= part->scale;
    if (all) return seconds;
  }
  return measure(region, plan, candidates, each, options_.devices);
}

/// The offers that have to be timed: those without a usable time, except those that the effort leaves out.
std::vector<std::size_t> MeasuredCosts::missing(const region::Region& region, const region::Plan& plan,
                                                const std::vector<region::Offer>& offers) const {
  const std::string key = region::key(region, plan);
  const Where where = at(plan.threads);
  const bool fast =
      std::any_of(offers.begin(), offers.end(), [](const region::Offer& o) { return o.refusal.empty() && !slow(o.tactic); });
  const auto pin = cache_.pinned(where, key);  // never left out
  const std::vector<char> first = among_first(region, key, offers);
  double least = -1;
  for (const region::Offer& o : offers) {
    if (o.refusal.empty() && o.cost > 0 && (least < 0 || o.cost < least)) least = o.cost;
  }
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < offers.size(); ++i) {
    if (!offers[i].refusal.empty()) continue;
    const std::string name = offers[i].tactic.name();
    if (const Timing* t = cache_.find(where, key, name); t != nullptr && usable(*t)) continue;
    const bool wanted = pin && *pin == name;
    if (!wanted && slow(offers[i].tactic) && fast) continue;
    if (!wanted && first[i] == 0) continue;
    if (!wanted && effort_.cost_limit > 0 && least > 0 && offers[i].cost > effort_.cost_limit * least) continue;
    if (provider_of(offers[i].tactic, providers_) != nullptr) out.push_back(i);
  }
  return out;
}

/// On a device other than the host: has the tactics compiled with which all regions of the plan will be timed, in that order, while the first of
/// them are timed.
void MeasuredCosts::compile_ahead(const region::Plan& plan) {
  std::shared_ptr<const region::Plan> own;
  for (const region::Region& r : plan.regions) {
    if (r.device == region::kHost || compiled_.contains(region::key(r, plan))) continue;
    if (own == nullptr) own = without_regions(plan);
    add_ahead(r, own);
  }
}

/// The tactics with which the region will be timed, unless it was here before.
void MeasuredCosts::add_ahead(const region::Region& r, const std::shared_ptr<const region::Plan>& plan) {
  if (r.device == region::kHost || region::is_transfer(r, *plan) || !compiled_.insert(region::key(r, *plan)).second) return;
  std::vector<region::Offer> offers;
  for (const region::Provider* p : providers_) {
    for (region::Offer& o : p->offers(r, *plan)) offers.push_back(std::move(o));
    if (!tries_variants()) continue;
    for (region::Offer& o : p->variants(r, *plan)) offers.push_back(std::move(o));
  }
  std::vector<Candidate> candidates;
  for (const std::size_t i : missing(r, *plan, offers))
    candidates.push_back({offers[i].tactic, provider_of(offers[i].tactic, providers_)});
  if (!candidates.empty()) ahead_.add(r, plan, std::move(candidates));
}

/// Kernels of all candidates are compiled in one queue, as many of each region as the effort allows for all of them. That follows from the
/// plans alone, never from the contents of the cache, so a build with a full cache asks it for the same times.
void MeasuredCosts::notice(const region::Plan& plan, bool last) {
  std::shared_ptr<const region::Plan> own;
  for (const region::Region& r : plan.regions) {
    if (r.device == region::kHost || region::is_transfer(r, plan)) continue;
    const std::string key = region::key(r, plan);
    if (answered_.contains({plan.threads, key}) || !noticed_keys_.insert(key).second) continue;
    if (own == nullptr) own = without_regions(plan);
    noticed_.emplace_back(r, own);
  }
  if (!last) return;
  const int regions = static_cast<int>(std::max<std::size_t>(noticed_.size(), 1));
  of_family_ = std::clamp(effort_.other_kernels / regions, plan::kFewestOtherSets, effort_.sets);
  if (!options_.strict) {
    for (const auto& [r, of] : noticed_) add_ahead(r, of);
  }
  noticed_.clear();
}

/// On another device than the host every tactic is compiled before it is timed, which is most of the cost: of each family only as many
/// sets of parameters count, in the provider's order, as the effort allows. Where it bounds the seconds, the first plan's kernels must also
/// fit into these on these cores; times that the cache has count in any case.
std::vector<char> MeasuredCosts::among_first(const region::Region& region, const std::string& key,
                                             const std::vector<region::Offer>& offers) const {
  std::vector<char> out(offers.size(), 1);
  if (region.device == region::kHost) return out;
  std::map<std::string, int> taken;
  for (const region::Offer& o : offers) {
    if (o.refusal.empty()) taken[o.tactic.family] = 0;
  }
  const bool first = first_.contains(key);
  int most = of_family_ > 0 && !first ? of_family_ : effort_.sets;
  if (first && effort_.first_seconds > 0 && options_.compile_seconds > 0) {
    const double kernels = effort_.first_seconds * options_.cores / options_.compile_seconds;
    const double families = static_cast<double>(std::max<std::size_t>(taken.size(), 1));
    most = static_cast<int>(std::clamp<double>(kernels / static_cast<double>(first_.size()) / families, effort_.fewest_sets, most));
  }
  for (std::size_t i = 0; i < offers.size(); ++i) {
    if (offers[i].refusal.empty()) out[i] = taken[offers[i].tactic.family]++ < most ? 1 : 0;
  }
  return out;
}

/// A disturbed time is used for a while, so that successive builds agree, and then measured again.
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
  options_.log(fmt::format("timing: {:>9.2f} us {:8} {} | {}", t.seconds * 1e6,
                           t.source == plan::TimeSource::cache ? "cache" : "measured", tactic, key));
}

std::optional<std::string> MeasuredCosts::pinned(const region::Region& region, const region::Plan& plan) {
  return cache_.pinned(at(plan.threads), region::key(region, plan));
}

Result<std::optional<plan::Costs::Pair>> MeasuredCosts::compare(const region::Plan& first, const region::Plan& second) {
  if (run_seconds(second) > kMostToCompare) return std::optional<Pair>();
  const std::string key = fmt::format("plans {} {}", region::plan_hash(first), region::plan_hash(second));
  const Where where = at(region::threads_of(first));
  const Timing* a = cache_.find(where, key, "plan.first");
  const Timing* b = cache_.find(where, key, "plan.second");
  if (!a || !b || a->seconds < 0 || b->seconds < 0) {
    if (options_.strict)
      return fail(ErrorKind::usage, fmt::format("strict timing: the timing cache has no comparison \"{}\"", key));
    OCTAVO_TRY(const PairTime t, measure_pair(first, second, providers_, effort_.plan_runs, options_.devices));
    remember(where, key, "plan.first", t.first, false);
    remember(where, key, "plan.second", t.second, false);
    a = cache_.find(where, key, "plan.first");
    b = cache_.find(where, key, "plan.second");
  }
  return Pair{a->seconds, b->seconds};
}

}  // namespace octavo::tune
