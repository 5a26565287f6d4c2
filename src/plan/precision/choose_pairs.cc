#include "plan/precision/choose_pairs.h"

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "base/causes/plan_search.h"
#include "plan/effort.h"
#include "plan/search/whole_runs.h"

namespace octavo::plan {
namespace {

constexpr std::string_view kChoice = "pairs";

/// Without copies from and to the host, which every candidate has: beside them a difference of the network would seem to be none.
double seconds_of(const region::Plan& plan) {
  double sum = 0;
  for (const region::Region& r : plan.regions) sum += r.seconds > 0 && r.precision.computes_here() ? r.seconds : 0;
  return sum;
}

struct Candidate {
  std::string_view name;
  std::optional<Planned> planned;
  double seconds = -1;
  Reasons notes;
};

/// The errors that mean "not this way", and not that something is broken or the caller wants to stop.
bool impossible(const Error& e) {
  return e.kind == ErrorKind::usage || e.kind == ErrorKind::unsupported;
}

}  // namespace

Result<Planned> choose_pairs(const ir::Graph& graph, const PlanContext& context, const PlanOnce& plan_once) {
  PlanOptions stands = context.options, inner = context.options;
  stands.permit_pairs = false;
  inner.inner_pairs = true;
  const auto with = [&](const PlanOptions& options) {
    return plan_once(graph, {context.providers, options, context.costs, context.memo, context.shown});
  };
  if (!context.enabled(kChoice)) return with(stands);
  OCTAVO_TRY(Planned permitted, with(context.options));
  if (context.options.forced.contains(std::string(kChoice))) return permitted;

  std::array<Candidate, 3> all{{{"as-they-stand", {}, -1, {}}, {"permitted", {}, -1, {}}, {"permitted-but-inner", {}, -1, {}}}};
  const auto add = [](Candidate& c, Planned planned) {
    c.seconds = seconds_of(planned.plan);
    c.planned = std::move(planned);
  };
  auto demanded = with(stands);
  if (demanded) {
    add(all[0], std::move(*demanded));
  } else if (impossible(demanded.error())) {
    all[0].notes = {because<cause::not_planned>(demanded.error().message)};
  } else {
    return tl::unexpected<Error>(demanded.error());
  }
  OCTAVO_TRY(Planned kept_inner, with(inner));
  const bool differs = region::plan_hash(kept_inner.plan) != region::plan_hash(permitted.plan);
  add(all[1], std::move(permitted));
  if (differs) {
    add(all[2], std::move(kept_inner));
  } else {
    all[2].notes = {because<cause::no_effect>()};
  }

  std::size_t best = all[2].planned && all[2].seconds < all[1].seconds ? 2 : 1;
  Reason why = because<cause::cheapest>(kPartPercent);
  if (all[0].planned) {
    if (all[best].seconds >= kPart * all[0].seconds) {
      best = 0, why = because<cause::not_cheaper>(kPartPercent);
    } else if (effort_at(context.options.effort).compares_plans) {
      OCTAVO_TRY(const auto times, run_in_turn(all[0].planned->plan, all[best].planned->plan, context));
      if (times) {
        all[0].seconds = times->base, all[best].seconds = times->other;
        why = because<cause::faster_in_whole_runs>(kWholePercent);
        if (!times->faster()) best = 0, why = because<cause::not_faster_in_whole_runs>(kWholePercent, times->other, times->base);
      }
    }
  }
  region::Decision d;
  d.choice = kChoice;
  d.where = all[best].planned->plan.model_name;
  for (Candidate& c : all) d.candidates.push_back({std::string(c.name), c.seconds, std::move(c.notes)});
  d.chosen = best;
  d.reasons = {std::move(why)};
  Planned out = *std::move(all[best].planned);
  out.plan.decisions.push_back(std::move(d));
  return out;
}

}  // namespace octavo::plan
