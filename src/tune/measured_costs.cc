// One class, past 400 lines: times, shares and compilations of one set of regions.
#include "tune/measured_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "plan/search/margins.h"
#include "region/key.h"
#include "tune/alike.h"
#include "tune/measure.h"
#include "tune/part.h"

namespace octavo::tune {
namespace {

constexpr double kPart = 0.5;  // of what a tactic is timed for: a run of a part of a large region

/// Plans that run longer are not run in turn: their regions are far larger than what neighbours share in caches, so the sum of the regions'
/// times is believed. By those times, not by a clock, so that builds with one cache agree.
constexpr double kMostToCompare = 0.12;

/// Where fewer kernels than that for each region of the first plan fit into the seconds of the effort, regions of a kind share what is found for one of
/// them: so many are compiled for each of the others.
constexpr double kFewSets = 8;
constexpr int kSetsAsLeader = 2;

/// The part of the cores that compile: threads of a compiler wait for each other, and one core times kernels (docs/lab/performance-gpu.md).
constexpr double kBusy = 0.65;

/// Kernels of the first plan that fit into the seconds of the effort.
double kernels_of_first(const plan::Effort& effort, const TuneOptions& options) {
  return effort.first_seconds * options.cores * kBusy / options.compile_seconds;
}

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

/// The tactic that the planner will take for these times, as a rule.
ProvidedTactic elected(const std::vector<region::Offer>& offers, const std::vector<plan::TacticTime>& times,
                       const std::vector<const region::Provider*>& providers) {
  double least = -1;
  for (const plan::TacticTime& t : times) {
    if (t.seconds >= 0 && (least < 0 || t.seconds < least)) least = t.seconds;
  }
  for (std::size_t i = 0; i < offers.size(); ++i) {
    if (times[i].seconds >= 0 && times[i].seconds <= least * (2 - plan::kPart))
      return {offers[i].tactic, provider_of(offers[i].tactic, providers)};
  }
  return {};
}

bool may_have_key_of(const region::Region& r, const region::Region& other) {
  return &r != &other && r.device == other.device && r.stages.size() == other.stages.size() &&
         r.stages.front().anchor.op == other.stages.front().anchor.op && r.stages.front().space == other.stages.front().space;
}

/// The plan that is found is mostly the first one, and its regions with this key have texts of their own where their constants differ: they are
/// compiled while other regions are timed, not when the plan is found.
void compile_chosen(CompileAhead& ahead, const region::Region& region, const std::string& key, const region::Plan& plan,
                    const ProvidedTactic& chosen) {
  if (chosen.provider == nullptr) return;
  std::shared_ptr<const region::Plan> own;
  for (const region::Region& r : plan.regions) {
    if (!may_have_key_of(r, region) || region::is_transfer(r, plan) || region::key(r, plan) != key) continue;
    if (own == nullptr) own = without_regions(plan);
    ahead.add(r, own, {chosen});
  }
}

}  // namespace

Result<std::vector<plan::TacticTime>> MeasuredCosts::price(const region::Region& region, const region::Plan& plan,
                                                           const std::vector<region::Offer>& offers) {
  if (first_.empty() && noticed_keys_.empty()) note_first(plan);
  const std::string key = region::key(region, plan);
  const Where where = at(plan.threads);
  if (!leaders_timed_ && first_.contains(key)) OCTAVO_CHECK(time_leaders(plan));
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
    if (t == nullptr || !usable(*t)) continue;
    const bool now = fresh_.find(where, key, offers[i].tactic.name()) != nullptr;
    times[i] = {t->seconds, now ? plan::TimeSource::measured : plan::TimeSource::cache};
  }
  OCTAVO_CHECK(time_missing(region, plan, key, offers, slots));
  for (const std::size_t i : slots) {
    if (const Timing* t = cache_.find(where, key, offers[i].tactic.name()); t != nullptr && t->seconds >= 0)
      times[i] = {t->seconds, plan::TimeSource::measured};
  }
  for (std::size_t i = 0; i < offers.size(); ++i) say(key, offers[i].tactic.name(), times[i]);
  answered_[{plan.threads, key}] = times;
  if (first_.contains(key) && !options_.strict && !options_.measure)
    compile_chosen(ahead_, region, key, plan, elected(offers, times, providers_));
  return times;
}

/// Measures these offers and keeps their times.
Status MeasuredCosts::time_missing(const region::Region& region, const region::Plan& plan, const std::string& key,
                                   const std::vector<region::Offer>& offers, const std::vector<std::size_t>& slots) {
  if (slots.empty()) return {};
  if (!compiled_.contains(key)) compile_ahead(plan);
  std::vector<ProvidedTactic> candidates;
  for (const std::size_t i : slots) candidates.push_back({offers[i].tactic, provider_of(offers[i].tactic, providers_)});
  OCTAVO_TRY(const auto seconds, time_part_or_all(region, plan, offers, slots, candidates));
  for (std::size_t k = 0; k < slots.size(); ++k) {
    if (seconds[k].seconds >= 0)
      remember(at(plan.threads), key, offers[slots[k]].tactic.name(), seconds[k].seconds, seconds[k].disturbed);
  }
  return {};
}

/// Times of the candidates (offers by `slots`). If the region runs long by the estimates, a part of it is timed.
Result<std::vector<TacticSeconds>> MeasuredCosts::time_part_or_all(const region::Region& region, const region::Plan& plan,
                                                                   const std::vector<region::Offer>& offers,
                                                                   const std::vector<std::size_t>& slots,
                                                                   const std::vector<ProvidedTactic>& candidates) const {
  if (options_.measure) return options_.measure(region, plan, candidates);
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
    if (r.device == region::kHost || compiled_.contains(region::key(r, plan)) || waits_for_leader(region::key(r, plan))) continue;
    if (own == nullptr) own = without_regions(plan);
    add_ahead(r, own);
  }
}

/// The regions of the first plan, and how many kernels of each are compiled where seconds bound them. Where these are few, regions of a kind share
/// what is found for the first of them.
void MeasuredCosts::note_first(const region::Plan& plan) {
  std::map<std::string, std::string> leaders;
  for (const region::Region& r : plan.regions) {
    if (r.device == region::kHost || region::is_transfer(r, plan)) continue;
    const std::string key = region::key(r, plan);
    if (!first_.insert(key).second) continue;
    const std::string kind = kind_of(r);
    if (kind.empty()) continue;
    const auto [leader, fresh] = leaders.emplace(kind, key);
    if (!fresh) leader_[key] = leader->second;
  }
  if (effort_.first_seconds <= 0 || options_.compile_seconds <= 0) return leader_.clear();
  const double kernels = kernels_of_first(effort_, options_);
  const auto regions = static_cast<double>(std::max<std::size_t>(first_.size(), 1));
  if (kernels >= kFewSets * regions) leader_.clear();
  double sets = kernels / regions;
  if (!leader_.empty()) {  // other regions have a kernel or two
    const auto followers = static_cast<double>(leader_.size()), kinds = static_cast<double>(leaders.size());
    sets = (kernels - kSetsAsLeader * followers - (regions - followers - kinds)) / kinds;
  }
  sets_of_first_ = std::max<double>(sets, effort_.fewest_sets);
}

/// As the planner asks for them, of all providers.
std::vector<region::Offer> MeasuredCosts::offers_of(const region::Region& region, const region::Plan& plan) const {
  std::vector<region::Offer> out;
  for (const region::Provider* p : providers_) {
    for (region::Offer& o : p->offers(region, plan)) out.push_back(std::move(o));
    if (!tries_variants()) continue;
    for (region::Offer& o : p->variants(region, plan)) out.push_back(std::move(o));
  }
  return out;
}

/// Before any other region of the first plan: those that are timed for their kind. What is fastest there is then compiled for the others.
Status MeasuredCosts::time_leaders(const region::Plan& plan) {
  leaders_timed_ = true;
  std::set<std::string> leaders;
  for (const auto& [key, leader] : leader_) leaders.insert(leader);
  std::shared_ptr<const region::Plan> own;
  for (const region::Region& r : plan.regions) {
    const std::string key = region::key(r, plan);
    if (leaders.erase(key) == 0) continue;
    const std::vector<region::Offer> offers = offers_of(r, plan);
    if (!options_.strict) OCTAVO_CHECK(time_missing(r, plan, key, offers, missing(r, plan, offers)));
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t i = 0; i < offers.size(); ++i) {
      const Timing* t = offers[i].refusal.empty() ? cache_.find(at(plan.threads), key, offers[i].tactic.name()) : nullptr;
      if (t != nullptr && t->seconds >= 0) order.emplace_back(t->seconds, i);
    }
    std::sort(order.begin(), order.end());
    std::vector<region::Tactic>& found = found_[key];
    for (const auto& [seconds, i] : order) found.push_back(offers[i].tactic);
    if (options_.strict) continue;
    if (own == nullptr) own = without_regions(plan);
    for (const region::Region& other : plan.regions) {
      const auto led = leader_.find(region::key(other, plan));
      if (led != leader_.end() && led->second == key) add_ahead(other, own);
    }
  }
  return {};
}

/// Its kernels are not known before another region was timed.
bool MeasuredCosts::waits_for_leader(const std::string& key) const {
  const auto led = leader_.find(key);
  return led != leader_.end() && !found_.contains(led->second);
}

/// Of a region that is like another one: what was fastest there, or what this region's own estimate says of that family; and the least estimate, or
/// where that is the same, the second of there.
std::vector<char> MeasuredCosts::as_leader(const std::string& leader, const std::vector<region::Offer>& offers,
                                           const std::vector<char>& allowed) const {
  std::vector<char> out(offers.size(), 0);
  const auto found = found_.find(leader);
  const auto cheapest = [&](std::string_view family) {
    std::size_t best = offers.size();
    for (std::size_t i = 0; i < offers.size(); ++i) {
      const bool usable = offers[i].refusal.empty() && allowed[i] != 0 && (family.empty() || offers[i].tactic.family == family);
      if (usable && (best == offers.size() || offers[i].cost < offers[best].cost)) best = i;
    }
    return best;
  };
  const auto take = [&](const region::Tactic& tactic) {
    std::size_t i = 0;
    while (i < offers.size() && (allowed[i] == 0 || !offers[i].refusal.empty() || !(offers[i].tactic == tactic))) ++i;
    if (i == offers.size()) i = cheapest(tactic.family);
    if (i < offers.size()) out[i] = 1;
  };
  const auto taken = [&] { return std::count(out.begin(), out.end(), 1); };
  if (found != found_.end() && !found->second.empty()) take(found->second.front());
  if (const std::size_t own = cheapest({}); own < offers.size()) out[own] = 1;
  for (std::size_t k = 1; found != found_.end() && k < found->second.size() && taken() < kSetsAsLeader; ++k) take(found->second[k]);
  return out;
}

void MeasuredCosts::begin(const region::Plan& plan) {
  if (options_.device.empty()) return;
  if (!first_.empty() || !noticed_keys_.empty())
    return notice(plan, false);  // of another search: it shares the bound of what is noticed
  note_first(plan);
  if (!options_.strict) compile_ahead(plan);
}

/// The tactics with which the region will be timed, unless it was here before.
void MeasuredCosts::add_ahead(const region::Region& r, const std::shared_ptr<const region::Plan>& plan) {
  if (options_.measure || r.device == region::kHost || region::is_transfer(r, *plan) ||
      !compiled_.insert(region::key(r, *plan)).second)
    return;
  const std::vector<region::Offer> offers = offers_of(r, *plan);
  std::vector<ProvidedTactic> candidates;
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
    if (first_.contains(key) || answered_.contains({plan.threads, key}) || !noticed_keys_.insert(key).second) continue;
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
/// fit into these on these cores: of a region so many sets, the first of each family before any second one, the least estimates first.
/// Times that the cache has count in any case.
std::vector<char> MeasuredCosts::among_first(const region::Region& region, const std::string& key,
                                             const std::vector<region::Offer>& offers) const {
  std::vector<char> out(offers.size(), 1);
  if (region.device == region::kHost) return out;
  const bool first = first_.contains(key);
  const int of_family = of_family_ > 0 && !first ? of_family_ : effort_.sets;
  std::map<std::string, int> taken;
  std::vector<std::tuple<int, double, std::size_t>> order;  // which of its family, the estimate, the offer
  for (std::size_t i = 0; i < offers.size(); ++i) {
    if (!offers[i].refusal.empty()) continue;
    const int turn = taken[offers[i].tactic.family]++;
    out[i] = turn < of_family ? 1 : 0;
    if (out[i] != 0) order.emplace_back(turn, offers[i].cost, i);
  }
  if (!first || sets_of_first_ <= 0) return out;
  if (const auto led = leader_.find(key); led != leader_.end()) return as_leader(led->second, offers, out);
  double most = sets_of_first_;
  if (!leader_.empty() && kind_of(region).empty()) {  // what regions of a kind save is for those that are timed for them
    const double kernels = kernels_of_first(effort_, options_);
    most = std::min(most, std::max<double>(kernels / static_cast<double>(first_.size()), effort_.fewest_sets));
  }
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (static_cast<double>(i + 1) > most) out[std::get<2>(order[i])] = 0;
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
