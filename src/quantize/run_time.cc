#include "quantize/run_time.h"

#include "cpu/provider.h"
#include "plan/plan.h"
#include "plan/precision/node_times.h"
#include "plan/search/price.h"

namespace octavo::quantize {

Result<RunTime> estimated_time(const onnx::Model& model, const std::set<std::string>& nodes) {
  const auto providers = cpu::providers();
  plan::PlanOptions options;
  OCTAVO_TRY(const plan::Planned planned, plan::make_plan(model.graph, providers, options));
  plan::Estimates estimates;
  plan::Memo memo;
  plan::Pricer pricer({providers, options, estimates, memo});
  RunTime out;
  OCTAVO_TRY(const auto items, pricer.price(planned.plan));
  for (const auto& item : items) out.seconds += item.seconds;
  OCTAVO_TRY(out.nodes, plan::node_times(pricer, planned.plan, nodes));
  return out;
}

}  // namespace octavo::quantize
