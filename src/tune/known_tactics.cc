#include "tune/known_tactics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "region/from_key.h"

namespace octavo::tune {

void put_on(std::string_view device, region::Plan& plan) {
  if (device == plan.devices[region::kHost].name) return;
  plan.devices.push_back({std::string(device), 0});
  for (region::Region& r : plan.regions) r.device = static_cast<region::DeviceId>(plan.devices.size() - 1);
}

Result<std::vector<region::Offer>> offers_for(const std::string& key, int threads,
                                              const std::vector<const region::Provider*>& providers) {
  OCTAVO_TRY(const region::Plan on_host, region::plan_from_key(key, threads));
  std::vector<region::Offer> out;
  for (const region::Provider* p : providers) {
    region::Plan plan = on_host;
    put_on(p->device(), plan);
    for (region::Offer& o : p->offers(plan.regions[0], plan)) out.push_back(std::move(o));
    for (region::Offer& o : p->variants(plan.regions[0], plan)) out.push_back(std::move(o));
  }
  return out;
}

Result<std::string> find_tactic(std::string_view wanted, const TimingCache& cache, const Where& where, const std::string& key,
                                const std::vector<const region::Provider*>& providers) {
  OCTAVO_TRY(const region::Tactic meant, region::parse_tactic(wanted));
  const auto choose = [&](const std::set<std::string>& names) -> Result<std::string> {
    if (names.contains(meant.name())) return meant.name();
    if (names.size() == 1) return *names.begin();
    std::string list;
    for (const std::string& n : names) list += "\n  " + n;
    return fail(ErrorKind::usage,
                fmt::format("\"{}\" means {} tactics of this key; name one with its parameters:{}", wanted, names.size(), list));
  };
  std::set<std::string> timed, known, all;
  for (auto at = cache.entries.lower_bound({where, key, ""}); at != cache.entries.end(); ++at) {
    const auto& [w, k, name] = at->first;
    if (w != where || k != key) break;
    const auto tactic = region::parse_tactic(name);
    if (tactic && at->second.seconds >= 0 && region::selects(meant, *tactic)) timed.insert(name);
  }
  if (!timed.empty()) return choose(timed);
  OCTAVO_TRY(const auto offers, offers_for(key, where.threads, providers));
  const bool exists = std::any_of(providers.begin(), providers.end(), [&](const region::Provider* p) { return p->knows(meant); });
  std::string why = exists ? "it is for other regions" : "no provider has it";
  for (const region::Offer& o : offers) {
    const bool fits = region::selects(meant, o.tactic);
    if (o.refusal.empty()) all.insert(o.tactic.name());
    if (o.refusal.empty() && fits) known.insert(o.tactic.name());
    if (!o.refusal.empty() && fits) why = spelled(o.refusal);
  }
  if (!known.empty()) return choose(known);
  return fail(ErrorKind::usage,
              fmt::format("\"{}\" cannot run this region: {}; these can: {}\n  key: {}", wanted, why, fmt::join(all, ", "), key));
}

}  // namespace octavo::tune
