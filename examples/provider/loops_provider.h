// An example of a provider for host threads: elementwise regions and max-pooling of codes, in plain loops.
#pragma once

#include "region/provider.h"

namespace example {

class LoopsProvider final : public octavo::region::Provider {
 public:
  std::string_view name() const override { return "example"; }
  std::vector<octavo::region::Offer> offers(const octavo::region::Region& region, const octavo::region::Plan& plan) const override;
  octavo::Result<octavo::region::Artifact> compile(const octavo::region::Region& region, const octavo::region::Plan& plan,
                                                   const octavo::region::Tactic& tactic) const override;
  octavo::Result<std::unique_ptr<octavo::region::Kernel>> load(const octavo::region::Region& region,
                                                               const octavo::region::Plan& plan,
                                                               const octavo::region::ArtifactView& artifact) const override;
};

}  // namespace example
