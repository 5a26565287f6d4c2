// Advice: which Q/DQ pairs cost time, and which would save it if they were there.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "plan/options.h"
#include "plan/roundings.h"
#include "region/provider.h"

namespace octavo::plan {

struct Advice {
  enum class Kind { drop, add } kind = Kind::drop;
  std::string tensor;                ///< whose pair it is
  std::set<std::string> onnx_nodes;  ///< drop: the pair's nodes; add: the operator that would become int8
  double seconds = 0;                ///< what the plan gains, by the sum of its regions' prices
  double error = -1;                 ///< drop: largest change of an output relative to its largest magnitude, -1: not estimated
  bool together = false;             ///< drop: one of those that pay beside each other, taken best first and priced again each time
  std::size_t place = 0;             ///< among the changes tried
  std::string why;
};

/// Every pair left out alone, and a pair added before every float convolution or product whose weights are constant (its price does
/// not depend on the scale). Each changed network is planned and priced with `options.costs`; what gains more than 2 % of the
/// regions it changes is advice, best first. `errors`: estimate for so many of the best what dropping changes (runs the reference:
/// slow for large networks). Cost: one planning a pair. Errors: those of make_plan.
struct Advised {
  double plan_seconds = 0;
  double dropped_seconds = 0;  ///< of the plan without all pairs that are `together`
  int tried = 0;
  std::vector<Advice> advice;
};
[[nodiscard]] Result<Advised> advise(ir::Graph graph, const std::vector<const region::Provider*>& providers,
                                     const PlanOptions& options, int errors);

/// What the roundings inside regions cost: each is left out alone, then all together, then those that cost time, and each time the
/// changed network is planned and priced.
struct PricedRounding {
  Rounding rounding;
  std::string region;             ///< the region's name in the plan of the default choices
  double with = 0, without = -1;  ///< seconds of the regions that differ; -1: without it somebody's region cannot run
  /// Saves more than 0.5 % of what differs when left out alone, or together with the other roundings of its region (and those that
  /// save alone then save less).
  bool costs_time = false;
  bool same_plan = false;  ///< no region differs: a step of a table that is there anyway; the times are the region's
};
struct Roundings {
  /// Some of them left out together.
  struct Together {
    double with = 0, without = 0;  ///< seconds of the regions that differ; without -1: a region cannot run
    bool same_plan = true;
    ir::Graph graph;  ///< normalized, without them
  };
  std::vector<PricedRounding> each;
  Together all;
  int costly = 0;  ///< how many cost time
  Together without_costly;
};
/// Times by `options.costs` (effort >= 1), else estimates; only regions that differ are priced. Ranges are not used: what they
/// permit, nobody demands. Cost: one planning a rounding. Errors: those of make_plan.
[[nodiscard]] Result<Roundings> price_roundings(ir::Graph graph, const std::vector<const region::Provider*>& providers,
                                                const PlanOptions& options);

/// The same roundings without prices. `graph` as imported. Cost: one normalization.
[[nodiscard]] Result<std::vector<Rounding>> roundings_of(ir::Graph graph, const PlanOptions& options);

}  // namespace octavo::plan
