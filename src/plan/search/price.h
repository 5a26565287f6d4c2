// Prices of plans: the sum of the regions' cheapest tactics. Regions are asked about once, by key.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/context.h"
#include "plan/cost.h"
#include "plan/search/steps.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::plan {

/// The offers of every provider for a region, in order of preference, and the offer that wins. With estimates: the first provider's
/// cheapest (estimates of different providers do not compare). With measured times: the first whose time is within 2 % of the
/// least.
struct Ballot {
  std::vector<region::Offer> offers;
  std::vector<const region::Provider*> by;  ///< parallel to offers
  std::vector<TacticTime> times;            ///< parallel to offers
  int winner = -1;                          ///< -1: everybody refused
  Reason why;                               ///< of the winner
  double price = -1;                        ///< what the search counts: the winner's time, or the least time where a pin decides
                                            ///< (so that the search does not plan around the pin)
};
[[nodiscard]] Result<Ballot> vote(const region::Region& region, const region::Plan& plan, const PlanContext& context);

class Pricer {
 public:
  explicit Pricer(const PlanContext& context) : context_(context) {}
  struct Item {
    std::string identity;  ///< key and first result: the same in two plans means the same region
    double seconds = 0;
  };
  /// Parallel to plan.regions. `steps`: told of each region. Errors: those of Costs; `unsupported` when nobody can run a region.
  [[nodiscard]] Result<std::vector<Item>> price(const region::Plan& plan, Steps* steps = nullptr);

 private:
  PlanContext context_;
  std::map<std::string, double> known_;
};

}  // namespace octavo::plan
