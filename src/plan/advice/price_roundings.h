// What a placement demands, in time: roundings inside regions, and float32 where codes are stored as well.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "plan/advice/roundings.h"
#include "plan/options.h"
#include "region/provider.h"

namespace octavo::plan {

/// Each rounding is left out alone (kind `left_out`: put in), then together with the others of its region, then all are,
/// and each time the changed network is planned (the default plan) and the regions that differ are priced. "Without" below means
/// without the rounding; for kind `left_out`, without the float32 tensor.
struct PricedRounding {
  /// How it was seen that the network is faster without it. `alone`: more than 0.5 % of what differs. `region`: with the others of
  /// its region, which save more together than those that save alone. `whole`: leaving out also those whose region is not clearly
  /// faster with them, or all others, makes the network faster: whole runs in turn by more than 1 % (where the effort compares plans; all others only
  /// then), else by the sums; and its region is one of those that differ.
  enum class Cost { none, alone, region, whole };
  Rounding rounding;
  std::string region;             ///< the region's name in the default plan
  double with = 0, without = -1;  ///< seconds of the regions that differ; -1: without it a region cannot run
  Cost cost = Cost::none;
  bool same_plan = false;  ///< no region differs: the rounding is a step of a table that exists in both; the times are the region's
  [[nodiscard]] bool costs_time() const { return cost != Cost::none; }
};
[[nodiscard]] std::string_view name_of(
    PricedRounding::Cost cost);  ///< "alone", "with the others of its region", "with all others"; none: empty

struct Roundings {
  /// The network with some of them left out together.
  struct Together {
    double with = 0, without = 0;  ///< seconds of the regions that differ; without -1: a region cannot run
    bool same_plan = true;
    ir::Graph graph;                             ///< normalized, without them
    double whole_with = -1, whole_without = -1;  ///< seconds of whole runs in turn; -1: not measured
  };
  std::vector<PricedRounding> each;
  Together all;
  int costly = 0;  ///< how many cost time
  Together without_costly;
};
/// Times by `options.costs` where the effort measures, else estimates. Ranges are not used: what they permit, nobody demands. Cost: one
/// planning a rounding, and up to four comparisons of whole runs. Errors: those of make_plan.
[[nodiscard]] Result<Roundings> price_roundings(ir::Graph graph, const std::vector<const region::Provider*>& providers,
                                                const PlanOptions& options);

/// The same roundings without prices. `graph` as imported. Cost: one normalization.
[[nodiscard]] Result<std::vector<Rounding>> roundings_of(ir::Graph graph, const PlanOptions& options);

}  // namespace octavo::plan
