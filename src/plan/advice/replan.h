// The default plan for a network that was changed: what advice and roundings are priced by.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "plan/context.h"
#include "plan/search/whole_runs.h"
#include "region/region.h"

namespace octavo::plan {

class Replanner {
 public:
  explicit Replanner(const PlanContext& context) : context_(context) {}
  /// Laws and float rules, but for those that the options disable. Ranges are not used.
  [[nodiscard]] Status normalize(ir::Graph& g) const;
  /// Of a normalized graph; without tactics and memory.
  [[nodiscard]] Result<region::Plan> plan_of(const ir::Graph& g) const;
  /// Whole runs of two such plans in turn; nothing where the costs cannot run plans, or nobody can run a region. The plans get
  /// tactics and memory.
  [[nodiscard]] Result<std::optional<WholeRuns>> compare(region::Plan& base, region::Plan& other) const;

 private:
  PlanContext context_;
};

}  // namespace octavo::plan
