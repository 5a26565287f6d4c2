#include "quantize/search/run_time.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/causes/plan_candidates.h"
#include "cpu/isa.h"
#include "cpu/provider.h"
#include "plan/plan.h"
#include "plan/precision/node_times.h"
#include "plan/search/price.h"
#include "reference/oracle_provider.h"

namespace octavo::quantize {
namespace {

using Providers = std::vector<const region::Provider*>;

/// Kernels refuse bfloat16 where the processor lacks the instructions. The reference takes such a region, so that there is a plan in
/// which it can be found.
Result<plan::Planned> plan_with_reference(const onnx::Model& model, const plan::PlanOptions& options, Providers providers) {
  providers.push_back(&reference::oracle_provider());
  return plan::make_plan(model.graph, providers, options);
}

/// What the processor lacks for the kernels that it keeps from the region; without such a kernel, what all of them say.
std::string why_none(const Reasons& refused) {
  std::string all, own;
  for (auto at = refused.begin(); at != refused.end();) {
    const auto next = std::find_if(at + 1, refused.end(), [](const Reason& r) { return r.cause == cause::kernel_refused; });
    const Reasons of_kernel(at, next);  // its name first
    for (std::string* text : {&all, &own}) {
      if (text == &own && !cpu::lacks_capability(of_kernel)) continue;
      for (const Reason& reason : of_kernel) {
        *text += reason.cause == cause::kernel_refused
                     ? fmt::format("{}{}:", text->empty() ? "" : "; ", std::get<std::string>(reason.values[0]))
                     : " " + spelled({reason});
      }
    }
    at = next;
  }
  return own.empty() ? all : own;
}

/// The nodes of bfloat16 regions that `providers` refuse; `why`: what they say about the first.
std::set<std::string> refused_nodes(const plan::Planned& planned, const plan::PlanOptions& options, const Providers& providers,
                                    std::string* why) {
  plan::Estimates estimates;
  plan::Memo memo(providers);
  std::set<std::string> out;
  for (const region::Region& r : planned.plan.regions) {
    if (r.precision != ir::DType::bf16) continue;
    const Reasons refused = plan::refusals_of(r, planned.plan, {providers, options, estimates, memo});
    if (refused.empty()) continue;
    if (out.empty() && why != nullptr) *why = why_none(refused);
    out.insert(r.onnx_nodes.begin(), r.onnx_nodes.end());
  }
  return out;
}

}  // namespace

std::vector<plan::PrecisionRule> rules_for(const std::set<std::string>& nodes, plan::LayerType type) {
  std::vector<plan::PrecisionRule> out;
  for (const std::string& node : nodes) {
    std::string pattern;
    for (const char c : node) {
      if (c == '*' || c == '?' || c == '[' || c == '\\') pattern += '\\';
      pattern += c;
    }
    out.push_back({pattern, type});
  }
  return out;
}

Result<RunTime> estimated_time(const onnx::Model& model, const std::set<std::string>& nodes,
                               const std::set<std::string>& bfloat16) {
  return estimated_time(model, nodes, bfloat16, cpu::providers());
}

Result<RunTime> estimated_time(const onnx::Model& model, const std::set<std::string>& nodes, const std::set<std::string>& bfloat16,
                               const Providers& providers) {
  RunTime out;
  plan::PlanOptions options;
  if (!bfloat16.empty()) {
    options.precisions = rules_for(bfloat16, "bfloat16");
    OCTAVO_TRY(const plan::Planned trial, plan_with_reference(model, options, providers));
    std::set<std::string> left = bfloat16;
    for (const std::string& node : refused_nodes(trial, options, providers, nullptr)) {
      if (left.erase(node) > 0) out.without_kernel.insert(node);
    }
    options.precisions = rules_for(left, "bfloat16");
  }
  OCTAVO_TRY(const plan::Planned planned, plan::make_plan(model.graph, providers, options));
  plan::Estimates estimates;
  plan::Memo memo(providers);
  plan::Pricer pricer({providers, options, estimates, memo});
  OCTAVO_TRY(const auto items, pricer.price(planned.plan));
  for (const auto& item : items) out.seconds += item.seconds;
  OCTAVO_TRY(out.nodes, plan::node_times(pricer, planned.plan, nodes));
  return out;
}

Result<Bfloat16Layers> bfloat16_layers(const onnx::Model& model) {
  const Providers& providers = cpu::providers();
  plan::PlanOptions options;
  options.allowed = {"float32", "bfloat16"};
  OCTAVO_TRY(const plan::Planned may, plan_with_reference(model, options, providers));
  options.precisions = rules_for(may.permitted.may_bfloat16, "bfloat16");  // whatever can be
  OCTAVO_TRY(const plan::Planned planned, plan_with_reference(model, options, providers));
  Bfloat16Layers out;
  for (const auto& [node, why] : planned.permitted.bfloat16) out.possible.insert(node);
  for (const std::string& node : refused_nodes(planned, options, providers, &out.why)) {
    if (out.possible.contains(node)) out.without_kernel.insert(node);
  }
  return out;
}

}  // namespace octavo::quantize
