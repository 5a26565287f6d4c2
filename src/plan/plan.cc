#include "plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "ir/canonical.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "plan/candidates/by_image.h"
#include "plan/candidates/narrow.h"
#include "plan/layout/bind.h"
#include "plan/layout/memory.h"
#include "plan/precision/permit.h"
#include "plan/precision/precision.h"
#include "plan/search/choose.h"
#include "plan/search/confirm.h"
#include "plan/search/guard.h"
#include "plan/search/search.h"
#include "quant/normal_form.h"

namespace octavo::plan {
namespace {

constexpr std::string_view kFusions[] = {
    "fuse-epilogue", "fuse-conv-pool", "stages",      "stage-operand", "horizontal", "one-pass",   "concat",   "stores",
    "segments",      "direct-store",   "split-views", "split-conv",    "precision",  "inner-view", "by-image", "tactics"};

// One reason a name is known: laws, float rules and fusions share the switch.
Status split_disabled(const PlanOptions& options, rewrite::RunOptions& laws, rewrite::RunOptions& floats) {
  for (const std::string& name : options.disabled) {
    bool known = std::find(std::begin(kFusions), std::end(kFusions), name) != std::end(kFusions);
    for (const rewrite::Rule* r : quant::laws()) {
      if (r->name() == name) known = laws.disabled.insert(name).second;
    }
    for (const rewrite::Rule* r : passes::float_rules()) {
      if (r->name() == name) known = floats.disabled.insert(name).second;
    }
    if (!known) {
      std::string all;
      for (const std::string& n : rule_names()) all += (all.empty() ? "" : ", ") + n;
      return fail(ErrorKind::usage, fmt::format("--disable={}: no rule has this name\n  known: {}", name, all));
    }
  }
  laws.verify = floats.verify = options.verify;
  laws.dump = floats.dump = options.dump;
  return {};
}

/// Questions that can be answered without asking for times.
Status check_forced(const PlanOptions& options) {
  constexpr std::string_view kKinds[] = {"fuse-conv-pool", "stages",   "stage-operand", "horizontal",  "one-pass",  "concat",
                                         "stores",         "segments", "direct-store",  "split-views", "split-conv"};
  for (const std::string& name : options.forced) {
    if (std::find(std::begin(kKinds), std::end(kKinds), name) == std::end(kKinds))
      return fail(ErrorKind::usage,
                  fmt::format("--force={}: no question has this name\n  known: {}", name, fmt::join(kKinds, ", ")));
    if (options.disabled.contains(name))
      return fail(ErrorKind::usage, fmt::format("--force={0} and --disable={0}: give one of them", name));
  }
  return {};
}

/// Was int8 demanded or permitted, and what kept float anchors float?
void explain_precision(region::Plan& plan, const PermitReport& report) {
  for (region::Region& r : plan.regions) {
    for (const std::string& node : r.onnx_nodes) {
      if (report.permitted.contains(node) && r.precision.starts_with("int8")) {
        r.reason = "permitted by the range of its input; " + r.reason;
        break;
      }
      if (report.demanded.contains(node) && r.precision.starts_with("int8")) {
        r.reason = "demanded by the model's Q/DQ; " + r.reason;
        break;
      }
      const auto small = report.bfloat16.find(node);
      if (small != report.bfloat16.end() && r.precision == "bfloat16") {
        const auto not_int8 = report.why_float.find(node);
        const bool said =
            not_int8 == report.why_float.end() || not_int8->second == small->second || small->second.starts_with("asked for");
        r.reason = small->second + (said ? "" : "; not int8: " + not_int8->second) + "; " + r.reason;
        break;
      }
      const auto why = report.why_float.find(node);
      if (why != report.why_float.end() && r.precision.starts_with("float32")) {
        r.reason = "not int8: " + why->second + "; " + r.reason;
        break;
      }
    }
  }
}

}  // namespace

std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  for (const rewrite::Rule* r : quant::laws()) names.emplace_back(r->name());
  for (const rewrite::Rule* r : passes::float_rules()) names.emplace_back(r->name());
  for (const std::string_view f : kFusions) names.emplace_back(f);
  return names;
}

namespace {

/// One planning: the passes of a graph, and what came of them.
class Planner {
 public:
  Planner(const std::vector<const region::Provider*>& providers, const PlanOptions& options, Costs& costs)
      : providers_(providers), options_(options), costs_(costs) {}

  Result<Planned> run(ir::Graph graph) {
    OCTAVO_CHECK(split_disabled(options_, laws_, floats_));
    OCTAVO_CHECK(check_forced(options_));
    if (!options_.ranges.empty()) given_ = set_ranges(graph, options_.ranges);
    OCTAVO_TRY(auto first, quant::normalize(graph, laws_));
    out_.reports.push_back(std::move(first));
    std::map<std::string, BoundTensor> bound;
    if (!options_.bindings.empty()) {
      OCTAVO_TRY(bound, bind(graph, options_.bindings));
      OCTAVO_CHECK(ir::verify(graph));
      OCTAVO_TRY(auto again, quant::normalize(graph, laws_));
      out_.reports.push_back(std::move(again));
    }
    rewrite::RunOptions before = floats_;  // codes are made of the model's own weights, as exporters of Q/DQ do: fold later
    if (permits()) before.disabled.insert("fold-batch-norm");
    OCTAVO_TRY(auto second, rewrite::run(graph, passes::float_rules(), before));
    out_.reports.push_back(std::move(second));
    const PrecisionWork work{[&](const PermitChoices& choices) { return normal_form(graph, choices); },
                             [&]() -> Result<ir::Graph> {
                               OCTAVO_TRY(Form form, float_form(graph));
                               return std::move(form.graph);
                             },
                             [&](Realized& made) { return finish(made); },
                             providers_,
                             options_,
                             costs_};
    OCTAVO_TRY(auto chosen, choose_precisions(work));
    auto& [form, searched] = chosen;
    for (rewrite::RunReport& report : form.reports) out_.reports.push_back(std::move(report));
    OCTAVO_CHECK(confirm({form.graph, providers_, options_, costs_, [&](Realized& made) { return finish(made); }}, searched));
    out_.permitted = std::move(form.permitted);
    out_.permitted.unmatched = std::move(given_.unmatched);
    out_.permitted.unusable = std::move(given_.unusable);
    out_.plan = std::move(searched.best.plan);
    out_.seconds = searched.best_seconds;
    explain_precision(out_.plan, out_.permitted);
    out_.plan.decisions = std::move(searched.decisions);
    for (auto* list : {&out_.plan.inputs, &out_.plan.outputs}) {
      for (region::Binding& b : *list) {
        const auto found = bound.find(b.name);
        if (found == bound.end()) continue;
        b.format = found->second.format;
        if (found->second.quantizer) b.quantizer = found->second.quantizer;
      }
    }
    out_.graph = std::move(searched.best.graph);
    return std::move(out_);
  }

 private:
  [[nodiscard]] bool permits() const {
    return !options_.ranges.empty() || !options_.precisions.empty() || options_.allowed.contains("bfloat16");
  }

  /// Views put where ranges permit them, but for some nodes; then the laws.
  Result<Form> normal_form(const ir::Graph& before, const PermitChoices& choices) const {
    Form form;
    form.graph = before;
    if (permits()) {
      OCTAVO_TRY(form.permitted, permit(form.graph, options_, choices));
      OCTAVO_TRY(form.reports.emplace_back(), quant::normalize(form.graph, laws_));
      OCTAVO_TRY(form.reports.emplace_back(), rewrite::run(form.graph, passes::float_rules(), floats_));
    }
    OCTAVO_TRY(form.reports.emplace_back(), quant::normalize(form.graph, laws_));
    narrow(form.graph);
    OCTAVO_CHECK(ir::verify(form.graph));
    return form;
  }

  /// The network as if nothing were permitted.
  Result<Form> float_form(const ir::Graph& before) const {
    Form form;
    form.graph = before;
    OCTAVO_TRY(form.reports.emplace_back(), quant::normalize(form.graph, laws_));
    OCTAVO_TRY(form.reports.emplace_back(), rewrite::run(form.graph, passes::float_rules(), floats_));
    OCTAVO_TRY(form.reports.emplace_back(), quant::normalize(form.graph, laws_));
    return form;
  }

  Status finish(Realized& made) {
    OCTAVO_CHECK(choose_tactics(made.plan, providers_, costs_));
    plan_memory(made.plan);
    return {};
  }

  const std::vector<const region::Provider*>& providers_;
  const PlanOptions& options_;
  Costs& costs_;
  rewrite::RunOptions laws_, floats_;
  PermitReport given_;  ///< which ranges count
  Planned out_;
};

}  // namespace

Result<Planned> make_plan(ir::Graph graph, const std::vector<const region::Provider*>& providers, const PlanOptions& options) {
  Estimates estimates;
  Costs& costs = options.costs != nullptr && options.effort > 0 ? *options.costs : estimates;
  const MakePlan make = [&](ir::Graph g, const PlanOptions& o) {
    return Planner(providers, o, o.effort == 0 ? static_cast<Costs&>(estimates) : costs).run(std::move(g));
  };
  OCTAVO_TRY(Planned planned, make(graph, options));
  OCTAVO_CHECK(choose_images(graph, options, costs, make, planned));
  OCTAVO_CHECK(guard(graph, options, costs, make, planned));
  return planned;
}

}  // namespace octavo::plan
