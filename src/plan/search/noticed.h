// For sources of times that prepare what a search will ask for: kernels that are compiled together use all cores.
#pragma once

#include "region/region.h"

namespace octavo::plan {

/// A Costs that is one of these is told beforehand.
class Noticed {
 public:
  virtual ~Noticed() = default;
  /// Are notices worth their time? Every candidate of a search is planned once more for them.
  [[nodiscard]] virtual bool wants_notice() const = 0;
  /// The regions of this plan, some of them new, will be priced; `last`: no more plans follow.
  virtual void notice(const region::Plan& plan, bool last) = 0;
};

}  // namespace octavo::plan
