// What families offered for regions, while a network is planned: its plans have most of their regions in common, and each of them is asked for several times.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "region/provider.h"

namespace octavo::cuda {

/// Thread-safe. Offers are kept until `clear`, which the end of each planning calls, and those of at most kMost regions: about 10 kB each.
class OfferMemo {
 public:
  static constexpr std::size_t kMost = 4096;

  /// What `make` gives for the region, or what it gave for one of the same content (region::content_hash).
  [[nodiscard]] std::vector<region::Offer> of(const region::Region& region, const region::Plan& plan,
                                              const std::function<std::vector<region::Offer>()>& make);
  void clear();

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<region::Offer>> made_;
};

}  // namespace octavo::cuda
