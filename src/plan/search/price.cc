#include "plan/search/price.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

#include "base/causes/plan_search.h"
#include "plan/decided.h"
#include "plan/search/margins.h"
#include "region/key.h"

namespace octavo::plan {
namespace {

void elect_by_estimates(Ballot& b) {
  for (std::size_t i = 0; i < b.offers.size(); ++i) {
    const auto winner = static_cast<std::size_t>(b.winner);
    if (!b.offers[i].refusal.empty()) continue;
    if (b.winner >= 0 && (b.by[i] != b.by[winner] || b.offers[i].rank != b.offers[winner].rank))
      break;  // what follows is less preferred
    if (b.winner < 0 || b.offers[i].cost < b.offers[winner].cost) b.winner = static_cast<int>(i);
  }
  b.why = because<cause::tactic_first_by_estimate>();
}

void elect_by_times(Ballot& b) {
  double least = -1;
  for (const TacticTime& t : b.times) {
    if (t.seconds >= 0 && (least < 0 || t.seconds < least)) least = t.seconds;
  }
  if (least < 0) return elect_by_estimates(b);
  for (std::size_t i = 0; i < b.times.size() && b.winner < 0; ++i) {
    if (b.times[i].seconds >= 0 && b.times[i].seconds <= least * (2 - kPart)) b.winner = static_cast<int>(i);
  }
  b.why = b.times[static_cast<std::size_t>(b.winner)].seconds == least ? because<cause::tactic_fastest>()
                                                                       : because<cause::tactic_preferred>(kPartPercent);
}

/// A model's constants lie packed in its engine file once for all shapes whose tactics pack them alike.
void prefer_shared(Ballot& b, const region::Region& r, const region::Plan& plan, const Decided& near) {
  const region::Tactic* earlier = tactic_for(near, r, plan);
  if (earlier == nullptr || b.winner < 0) return;
  const auto layout = [&](const region::Provider& p, const region::Tactic& tactic) {
    region::Region with = r;
    with.tactic = tactic;
    return p.packed_layout(with, plan);
  };
  const auto comparable = [&](std::size_t i) {
    const region::Tactic& t = b.offers[i].tactic;
    return b.offers[i].refusal.empty() && b.times[i].seconds >= 0 && t.provider == earlier->provider &&
           t.family == earlier->family && b.by[i]->knows(*earlier);
  };
  double least = -1;
  for (const TacticTime& t : b.times) {
    if (t.seconds >= 0 && (least < 0 || t.seconds < least)) least = t.seconds;
  }
  std::optional<std::string> wanted;
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < b.offers.size(); ++i) {
    if (!comparable(i) || b.times[i].seconds > least * kShared) continue;
    if (!wanted) wanted = layout(*b.by[i], *earlier);
    if (!wanted || wanted->empty()) return;  // nothing is packed, or nobody knows how
    if (layout(*b.by[i], b.offers[i].tactic) != wanted) continue;
    if (static_cast<int>(i) == b.winner) return;
    if (!best || b.times[i].seconds < b.times[*best].seconds) best = i;
  }
  if (!best) return;
  b.winner = static_cast<int>(*best);
  b.why = because<cause::tactic_shares_constants>(kSharedPercent, near.from);
}

}  // namespace

Result<Ballot> vote(const region::Region& r, const region::Plan& plan, const PlanContext& context) {
  Ballot b;
  Costs& costs = context.costs;
  const auto pin = costs.pinned(r, plan);
  const std::string& device = plan.devices[static_cast<std::size_t>(r.device)].name;
  for (const region::Provider* p : context.providers) {
    if (p->device() != device) continue;
    std::vector<region::Offer> offers = p->offers(r, plan);
    if (pin || costs.tries_variants()) std::ranges::move(p->variants(r, plan), std::back_inserter(offers));
    std::ranges::stable_sort(offers, {}, &region::Offer::rank);
    b.by.insert(b.by.end(), offers.size(), p);
    std::ranges::move(offers, std::back_inserter(b.offers));
  }
  OCTAVO_TRY(b.times, costs.price(r, plan, b.offers));
  if (pin) {
    const auto found = std::find_if(b.offers.begin(), b.offers.end(),
                                    [&](const region::Offer& o) { return o.tactic.name() == *pin && o.refusal.empty(); });
    if (found == b.offers.end()) {
      return fail(ErrorKind::usage,
                  fmt::format("region \"{}\": the timing cache pins tactic \"{}\", which does not apply\n  key: {}", r.name, *pin,
                              region::key(r, plan)));
    }
    b.winner = static_cast<int>(found - b.offers.begin());
    b.why = because<cause::tactic_pinned>();
    for (const TacticTime& t : b.times) {
      if (t.seconds >= 0 && (b.price < 0 || t.seconds < b.price)) b.price = t.seconds;
    }
    return b;
  }
  if (costs.source() == CostSource::estimates) {
    elect_by_estimates(b);
  } else {
    elect_by_times(b);
    if (const Decided* near = preferred(context.options)) prefer_shared(b, r, plan, *near);
  }
  if (b.winner >= 0) b.price = b.times[static_cast<std::size_t>(b.winner)].seconds;
  return b;
}

Result<std::vector<Pricer::Item>> Pricer::price(const region::Plan& plan, Steps* steps) {
  std::vector<Item> out;
  for (const region::Region& r : plan.regions) {
    if (steps != nullptr) OCTAVO_CHECK(steps->next());
    const std::string key = region::key(r, plan);
    auto found = known_.find(key);
    if (found == known_.end()) {
      OCTAVO_TRY(const Ballot b, vote(r, plan, context_));
      if (b.winner < 0) return fail(ErrorKind::unsupported, fmt::format("no tactic can run region \"{}\"", r.name));
      found = known_.emplace(key, b.price).first;
    }
    out.push_back({fmt::format("{} -> {}", key, r.graph_outputs.empty() ? ir::kNone : r.graph_outputs[0]), found->second});
  }
  return out;
}

}  // namespace octavo::plan
