#include "plan/plan.h"

#include <fmt/format.h>

#include "ir/canonical.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "plan/choose.h"
#include "plan/group.h"
#include "plan/lower.h"
#include "plan/memory.h"
#include "plan/place.h"
#include "plan/provenance.h"
#include "quant/normal_form.h"

namespace octavo::plan {
namespace {

constexpr std::string_view kFusions[] = {"fuse-epilogue", "fuse-conv-pool"};

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
  OCTAVO_TRY(auto first, quant::normalize(graph, laws));
  out.reports.push_back(std::move(first));
  OCTAVO_TRY(auto second, rewrite::run(graph, passes::float_rules(), floats));
  out.reports.push_back(std::move(second));
  OCTAVO_TRY(auto third, quant::normalize(graph, laws));
  out.reports.push_back(std::move(third));
  OCTAVO_CHECK(ir::verify(graph));

  const ir::Grids grids = ir::find_grids(graph);
  const Grouping grouping = make_groups(graph, options.disabled);
  OCTAVO_TRY(Placement placement, place(graph, grids, grouping));
  OCTAVO_TRY(auto regions, lower(graph, grids, grouping, placement));
  account_for_moves(graph, regions);
  region::Plan& plan = out.plan;
  plan.model_name = graph.name;
  plan.inputs = std::move(placement.inputs);
  plan.outputs = std::move(placement.outputs);
  plan.buffers = std::move(placement.buffers);
  plan.regions = std::move(regions);
  plan.threads = options.threads;
  if (!options.disabled.contains("fuse-conv-pool")) fuse_conv_pool(plan, providers);
  OCTAVO_CHECK(choose_tactics(plan, providers));
  plan_memory(plan);
  out.graph = std::move(graph);
  return out;
}

}  // namespace octavo::plan
