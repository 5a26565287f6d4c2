#include "plan/cost.h"

namespace octavo::plan {

Result<std::vector<TacticTime>> Estimates::price(const region::Region&, const region::Plan&,
                                                 const std::vector<region::Offer>& offers) {
  std::vector<TacticTime> times;
  for (const region::Offer& o : offers) times.push_back({o.refusal.empty() ? o.cost : -1, TimeSource::estimate});
  return times;
}

}  // namespace octavo::plan
