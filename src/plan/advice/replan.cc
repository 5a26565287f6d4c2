#include "plan/advice/replan.h"

#include "passes/passes.h"
#include "plan/candidates/choices.h"
#include "plan/layout/memory.h"
#include "plan/search/choose.h"
#include "quant/normal_form.h"

namespace octavo::plan {

Status Replanner::normalize(ir::Graph& g) const {
  const auto without_disabled = [&](const std::vector<const rewrite::Rule*>& rules) {
    rewrite::RunOptions out;
    for (const rewrite::Rule* r : rules) {
      if (options_.disabled.contains(r->name())) out.disabled.emplace(r->name());
    }
    return out;
  };
  const rewrite::RunOptions laws = without_disabled(quant::laws());
  OCTAVO_TRY(const auto first, quant::normalize(g, laws));
  OCTAVO_TRY(const auto second, rewrite::run(g, passes::float_rules(), without_disabled(passes::float_rules())));
  OCTAVO_TRY(const auto third, quant::normalize(g, laws));
  return {};
}

Result<region::Plan> Replanner::plan_of(const ir::Graph& g) const {
  OCTAVO_TRY(const auto unfused, realize(g, {}, providers_, options_));
  Choices defaults;
  defaults.staged = find_default_stages(unfused.plan, options_);
  OCTAVO_TRY(auto made, realize(g, defaults, providers_, options_));
  return std::move(made.plan);
}

Result<std::optional<Costs::Pair>> Replanner::compare(region::Plan& first, region::Plan& second) const {
  for (region::Plan* plan : {&first, &second}) {
    const Status chosen = choose_tactics(*plan, providers_, costs_);
    if (!chosen && chosen.error().kind == ErrorKind::unsupported) return std::nullopt;
    OCTAVO_CHECK(chosen);
    plan_memory(*plan);
  }
  return costs_.compare(first, second);
}

}  // namespace octavo::plan
