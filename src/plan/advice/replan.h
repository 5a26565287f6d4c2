// The plan of the default choices for a network that was changed: what advice and roundings are priced by.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "plan/options.h"
#include "plan/search/cost.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::plan {

class Replanner {
 public:
  /// All three must outlive it.
  Replanner(const std::vector<const region::Provider*>& providers, const PlanOptions& options, Costs& costs)
      : providers_(providers), options_(options), costs_(costs) {}
  /// Laws and float rules, but for those that the options switch off. Ranges are not used.
  [[nodiscard]] Status normalize(ir::Graph& g) const;
  /// Of a normalized graph; without tactics and memory.
  [[nodiscard]] Result<region::Plan> plan_of(const ir::Graph& g) const;
  /// Whole runs of two such plans in turn; nothing where the costs cannot run plans, or nobody can run a region. The plans get
  /// tactics and memory.
  [[nodiscard]] Result<std::optional<Costs::Pair>> compare(region::Plan& first, region::Plan& second) const;

 private:
  const std::vector<const region::Provider*>& providers_;
  const PlanOptions& options_;
  Costs& costs_;
};

}  // namespace octavo::plan
