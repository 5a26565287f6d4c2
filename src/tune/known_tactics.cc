#include "tune/known_tactics.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "region/from_key.h"

namespace octavo::tune {

Result<std::vector<region::Tactic>> tactics_for(const std::string& key, int threads,
                                                const std::vector<const region::Provider*>& providers) {
  OCTAVO_TRY(const region::Plan plan, region::plan_from_key(key, threads));
  std::vector<region::Tactic> out;
  for (const region::Provider* p : providers) {
    for (region::Offer& o : p->offers(plan.regions[0], plan)) out.push_back(std::move(o.tactic));
    for (region::Offer& o : p->variants(plan.regions[0], plan)) out.push_back(std::move(o.tactic));
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
  OCTAVO_TRY(const auto tactics, tactics_for(key, where.threads, providers));
  for (const region::Tactic& t : tactics) {
    all.insert(t.name());
    if (region::selects(meant, t)) known.insert(t.name());
  }
  if (!known.empty()) return choose(known);
  std::string list;
  for (const std::string& n : all) list += "\n  " + n;
  return fail(ErrorKind::usage, fmt::format("\"{}\" is no tactic for this key; there are:{}\n  key: {}", wanted, list, key));
}

}  // namespace octavo::tune
