// The families of kernels, and what the simple ones share.
#pragma once

#include <fmt/format.h>

#include <vector>

#include "cuda/family.h"
#include "cuda/text/elements.h"

namespace octavo::cuda {

using region::Plan;
using region::Region;
using region::Stage;

/// A family with one way to compute a region: it is refused for the reason why its text cannot be made.
class SingleFamily : public Family {
 public:
  [[nodiscard]] Reasons why_not(const Region& region, const Plan& plan, const Target& target) const override {
    return refusal_of(emit(region, plan, {}, target));
  }
  [[nodiscard]] std::vector<Candidate> candidates(const Region& region, const Plan&, const Target&) const override {
    return {{{}, seconds(region)}};
  }

 protected:
  /// Every tensor once through memory, and a launch.
  [[nodiscard]] virtual double seconds(const Region& region) const;
};

/// The stage of a region of one stage.
[[nodiscard]] inline const Stage& only(const Region& r) {
  return r.stages.front();
}
[[nodiscard]] inline bool is_single(const Region& r) {
  return r.stages.size() == 1 && !r.stages[0].stores.empty();
}

// Static storage.
[[nodiscard]] const Family& nothing_family();
[[nodiscard]] const Family& pointwise_family();
[[nodiscard]] const Family& copy_family();
[[nodiscard]] const Family& move_family();
[[nodiscard]] const Family& indexed_family();
[[nodiscard]] const Family& choose_family();
[[nodiscard]] const Family& typed_family();
[[nodiscard]] const Family& pool_family();
[[nodiscard]] const Family& reduce_family();
[[nodiscard]] const Family& softmax_family();
[[nodiscard]] const Family& norm_family();
[[nodiscard]] const Family& resize_family();
[[nodiscard]] const Family& transposed_conv_family();
[[nodiscard]] const Family& direct_conv_family();
[[nodiscard]] const Family& matmul_family();

}  // namespace octavo::cuda
