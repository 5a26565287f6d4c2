#include "plan/advice/replan.h"

#include "passes/passes.h"
#include "plan/candidates/choices.h"
#include "plan/search/choose.h"
#include "quant/normal_form.h"

namespace octavo::plan {

Status Replanner::normalize(ir::Graph& g) const {
  const auto without_disabled = [&](const std::vector<const rewrite::Rule*>& rules) {
    rewrite::RunOptions out;
    for (const rewrite::Rule* r : rules) {
      if (!context_.enabled(r->name())) out.disabled.emplace(r->name());
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
  OCTAVO_TRY(auto defaults, realize_defaults(g, context_));
  return std::move(defaults.made.plan);
}

Result<std::optional<WholeRuns>> Replanner::compare(region::Plan& base, region::Plan& other) const {
  for (region::Plan* plan : {&base, &other}) {
    const Status finished = finish(*plan, context_);
    if (!finished && finished.error().kind == ErrorKind::unsupported) return std::nullopt;
    OCTAVO_CHECK(finished);
  }
  return run_in_turn(base, other, context_);
}

}  // namespace octavo::plan
