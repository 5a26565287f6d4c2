#include "cuda/offer_memo.h"

#include "region/hash.h"

namespace octavo::cuda {

std::vector<region::Offer> OfferMemo::of(const region::Region& region, const region::Plan& plan,
                                         const std::function<std::vector<region::Offer>()>& make) {
  const std::string which = region::content_hash(region, plan);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = made_.find(which); found != made_.end()) return found->second;
  }
  std::vector<region::Offer> offers = make();  // not under the lock: it takes milliseconds, and other builds ask at the same time
  const std::lock_guard lock(mutex_);
  if (made_.size() >= kMost) made_.clear();
  made_.emplace(which, offers);
  return offers;
}

void OfferMemo::clear() {
  const std::lock_guard lock(mutex_);
  made_.clear();
}

}  // namespace octavo::cuda
