#include "plan/search/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/causes/plan_search.h"
#include "plan/decided.h"
#include "plan/layout/memory.h"
#include "plan/layout/transfers.h"
#include "plan/search/price.h"
#include "region/artifact.h"
#include "region/key.h"

namespace octavo::plan {
namespace {

using region::Plan;
using region::Region;

/// Every offer with what became of it.
std::vector<region::Alternative> alternatives_of(const Ballot& b) {
  std::vector<region::Alternative> out;
  for (std::size_t i = 0; i < b.offers.size(); ++i) {
    const region::Offer& o = b.offers[i];
    const TacticTime& t = b.times[i];
    if (!o.refusal.empty()) {
      region::Alternative& refused = out.emplace_back(region::Alternative{o.tactic.name(), {because<cause::tactic_refused>()}});
      add(refused.reasons, o.refusal);
      continue;
    }
    const bool estimate = t.source == TimeSource::estimate;
    out.push_back({o.tactic.name(),
                   {static_cast<int>(i) == b.winner ? b.why : because<cause::tactic_possible>()},
                   estimate ? -1 : t.seconds,
                   estimate ? t.seconds : -1});
  }
  return out;
}

/// What `shown` says of every offer, its further sets of parameters among them. The winner and why it won stay.
Result<Ballot> shown_by(Costs& shown, const Region& r, const Plan& plan, const PlanContext& context, const Ballot& elected) {
  OCTAVO_TRY(Ballot out, vote(r, plan, {context.providers, context.options, shown, context.memo}));
  const std::string& winner = elected.offers[static_cast<std::size_t>(elected.winner)].tactic.name();
  const auto same =
      std::find_if(out.offers.begin(), out.offers.end(), [&](const region::Offer& o) { return o.tactic.name() == winner; });
  if (same == out.offers.end())
    return fail(ErrorKind::internal, fmt::format("region \"{}\": {} is offered without times alone", r.name, winner));
  out.winner = static_cast<int>(same - out.offers.begin());
  out.why = elected.why;
  TacticTime& time = out.times[static_cast<std::size_t>(out.winner)];
  if (time.seconds < 0) time = elected.times[static_cast<std::size_t>(elected.winner)];
  return out;
}

/// Takes over the tactic that was decided on for other extents. False: there is none, or it refuses these.
bool follow_tactic(Region& r, Plan& plan, const PlanContext& context) {
  const Decided* decided = followed(context.options);
  if (decided == nullptr) return false;
  const region::Tactic* tactic = tactic_for(*decided, r, plan);
  if (tactic == nullptr) return false;
  for (const region::Provider* p : context.providers) {
    if (!p->knows(*tactic) || p->device() != plan.devices[static_cast<std::size_t>(r.device)].name) continue;
    auto made = context.memo.compiled.compile(*p, r, plan, *tactic);
    if (!made) return false;
    r.tactic = *tactic;
    r.alternatives = {{tactic->name(), {because<cause::tactic_of_other_shapes>(decided->from)}}};
    region::keep_artifact(std::move(*made), r, plan);
    return true;
  }
  return false;
}

}  // namespace

Status choose_tactics(Plan& plan, const PlanContext& context) {
  plan.cost_source = name_of(context.costs.source());
  for (Region& r : plan.regions) {
    if (follow_tactic(r, plan, context)) {
      r.key = region::key(r, plan);
      continue;
    }
    OCTAVO_TRY(Ballot ballot, vote(r, plan, context));
    if (context.shown != nullptr && ballot.winner >= 0) {
      OCTAVO_TRY(ballot, shown_by(*context.shown, r, plan, context, ballot));
    }
    r.key = region::key(r, plan);
    r.alternatives = alternatives_of(ballot);
    if (ballot.winner < 0) {
      std::string reasons;
      for (const region::Offer& o : ballot.offers) reasons += fmt::format("\n  {}: {}", o.tactic.name(), spelled(o.refusal));
      return fail(ErrorKind::unsupported,
                  fmt::format("no tactic can run region \"{}\":{}\n  {}", r.name, reasons,
                              r.device == region::kHost || context.providers.size() > 1
                                  ? std::string("please report this model")
                                  : fmt::format("device \"{},cpu\" runs such regions on the CPU; please report this model",
                                                plan.devices[static_cast<std::size_t>(r.device)].name)));
    }
    const auto winner = static_cast<std::size_t>(ballot.winner);
    r.tactic = ballot.offers[winner].tactic;
    r.seconds = ballot.times[winner].seconds;
    OCTAVO_TRY(region::Artifact made, context.memo.compiled.compile(*ballot.by[winner], r, plan, r.tactic));
    region::keep_artifact(std::move(made), r, plan);
  }
  region::drop_packed_weights(plan);
  return {};
}

Status finish(Plan& plan, const PlanContext& context) {
  add_transfers(plan);
  OCTAVO_CHECK(choose_tactics(plan, context));
  plan_memory(plan);
  return {};
}

}  // namespace octavo::plan
