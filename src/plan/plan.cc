#include "plan/plan.h"

#include <fmt/format.h>

#include "ir/canonical.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "plan/choose.h"
#include "plan/memory.h"
#include "plan/permit.h"
#include "plan/search.h"
#include "quant/normal_form.h"

namespace octavo::plan {
namespace {

constexpr std::string_view kFusions[] = {"fuse-epilogue", "fuse-conv-pool", "stages",   "horizontal",   "one-pass",
                                         "concat",        "stores",         "segments", "direct-store", "split-views"};

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

/// Was int8 demanded or permitted, and what kept float anchors float?
void explain_precision(region::Plan& plan, const PermitReport& report) {
  for (region::Region& r : plan.regions) {
    for (const std::string& node : r.onnx_nodes) {
      if (report.permitted.contains(node) && r.precision.starts_with("int8")) {
        r.reason = "permitted by the range of its input; " + r.reason;
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

Result<Planned> make_plan(ir::Graph graph, const std::vector<const region::Provider*>& providers, const PlanOptions& options) {
  rewrite::RunOptions laws, floats;
  OCTAVO_CHECK(split_disabled(options, laws, floats));
  Planned out;
  if (!options.ranges.empty()) out.permitted.unmatched = set_ranges(graph, options.ranges);
  OCTAVO_TRY(auto first, quant::normalize(graph, laws));
  out.reports.push_back(std::move(first));
  OCTAVO_TRY(auto second, rewrite::run(graph, passes::float_rules(), floats));
  out.reports.push_back(std::move(second));
  if (!options.ranges.empty() || !options.precisions.empty()) {
    auto unmatched = std::move(out.permitted.unmatched);
    OCTAVO_TRY(out.permitted, permit(graph, options));
    out.permitted.unmatched = std::move(unmatched);
  }
  OCTAVO_TRY(auto third, quant::normalize(graph, laws));
  out.reports.push_back(std::move(third));
  OCTAVO_CHECK(ir::verify(graph));

  Estimates estimates;
  Costs& costs = options.costs != nullptr && options.effort > 0 ? *options.costs : estimates;
  OCTAVO_TRY(Searched searched, search(graph, providers, options, costs));
  const auto finish = [&](Realized& made) -> Status {
    OCTAVO_CHECK(choose_tactics(made.plan, providers, costs));
    plan_memory(made.plan);
    return {};
  };
  OCTAVO_CHECK(finish(searched.best));
  if (options.effort >= 4 && searched.changed) {  // the sum of the parts is a forecast: the whole decides
    OCTAVO_CHECK(finish(searched.defaults));
    OCTAVO_TRY(const auto pair, costs.compare(searched.defaults.plan, searched.best.plan));
    if (pair && pair->second >= pair->first) {
      for (region::Decision& d : searched.decisions) {
        if (d.chosen == d.answers[0].name) continue;
        d.reason = fmt::format("\"{}\" was cheaper by parts, but the whole plan was not: {:.4g} us against {:.4g} us", d.chosen,
                               pair->second * 1e6, pair->first * 1e6);
        d.chosen = d.answers[0].name;
      }
      searched.best = std::move(searched.defaults);
    }
  }
  out.plan = std::move(searched.best.plan);
  explain_precision(out.plan, out.permitted);
  out.plan.decisions = std::move(searched.decisions);
  out.graph = std::move(searched.best.graph);
  return out;
}

}  // namespace octavo::plan
