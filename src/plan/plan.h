// The planner: graph in, plan out. normalize -> group -> place -> lower -> choose tactics -> lay out memory.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/out_of_line.h"
#include "base/result.h"
#include "ir/graph.h"
#include "plan/context.h"
#include "plan/decided.h"
#include "plan/options.h"
#include "plan/precision/permit.h"
#include "region/provider.h"
#include "region/region.h"
#include "rewrite/rule.h"

namespace octavo::plan {

/// A plan, and what `explain` and `check` want to know of how it came about.
struct Planned {
  region::Plan plan;
  ir::Graph graph;                          ///< the normalized graph; Region::graph_inputs/graph_outputs are its ValueIds
  PermitReport permitted;                   ///< with ranges: what they made of the network
  double seconds = 0;                       ///< forecast: the sum of the regions' prices; 0 where no choice was priced
  std::vector<rewrite::RunReport> reports;  ///< laws and float rules in turn: applications, times, reasons of refusals
  Decided decided;                          ///< what made this plan, for other shapes (PlanOptions::follow)
  std::optional<Decided> whole_batch;       ///< where the plan is one of images: what the plan of the whole batch was made of
  OCTAVO_OUT_OF_LINE(Planned);
};

/// One planning of a graph with other options or costs: what choices between complete plans are given.
using PlanOnce = std::function<Result<Planned>(ir::Graph, const PlanContext&)>;

/// Plans `graph` (as imported) for the given providers, in order of preference. Deterministic: the same arguments give the same
/// plan. With PlanOptions::follow the graph is planned once, by these decisions: a region whose tactic refuses its new extents, or that they do not
/// know, gets the first by estimates; where the graph has another form, its default candidates are taken.
[[nodiscard]] Result<Planned> make_plan(ir::Graph graph, const std::vector<const region::Provider*>& providers,
                                        const PlanOptions& options);

/// The plan of PlanOptions::follow up to the choice of tactics, for plan/parametric.h; of one image, where the decisions are those of one.
/// Errors: also `unsupported`, where the graph has not the form that the decisions are about.
[[nodiscard]] Result<region::Plan> outline(const ir::Graph& graph, const std::vector<const region::Provider*>& providers,
                                           const PlanOptions& options);

/// The names that PlanOptions::disabled accepts: laws, float rules and the planner's choices (plan/candidates/registry.h).
[[nodiscard]] std::vector<std::string> rule_names();
/// Are `disabled` and `forced` known names, and none in both? Errors: `usage` listing the known names. Every planning asks it.
[[nodiscard]] Status check_names(const PlanOptions& options);

}  // namespace octavo::plan
