// What a region costs under each tactic: the planner's only source of times. `tune` implements it with measurements and a cache;
// without one the providers' own estimates count.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::plan {

/// Where the time of a tactic comes from.
enum class TimeSource { none, estimate, measured, cache };

struct TacticTime {
  double seconds = -1;  ///< -1: this tactic was not priced (refused, or left out at this effort)
  TimeSource source = TimeSource::none;
};

/// Where the times of a plan come from.
enum class CostSource { estimates, measured };
/// As region::Plan::cost_source says it.
[[nodiscard]] inline std::string_view name_of(CostSource source) {
  return source == CostSource::estimates ? "estimates" : "measured";
}

class Costs {
 public:
  virtual ~Costs() = default;
  /// Times of the offers, parallel to them; refused ones get -1. Offers come in the order of preference of the providers. The
  /// answer depends on the region's key, the offers and the state of the cache only. Errors: strict mode's miss; a pin that names a
  /// tactic which is not among the offers or refuses.
  [[nodiscard]] virtual Result<std::vector<TacticTime>> price(const region::Region& region, const region::Plan& plan,
                                                              const std::vector<region::Offer>& offers) = 0;
  /// The tactic that must be taken for this region, if somebody pinned one.
  [[nodiscard]] virtual std::optional<std::string> pinned(const region::Region&, const region::Plan&) { return std::nullopt; }
  /// Whole-plan times of two plans with tactics chosen and constants packed, run in turn; nothing when this source cannot measure.
  struct Pair {
    double first = 0, second = 0;
  };
  [[nodiscard]] virtual Result<std::optional<Pair>> compare(const region::Plan&, const region::Plan&) {
    return std::optional<Pair>();
  }
  /// Are a provider's further sets of parameters (Provider::variants) worth asking for?
  [[nodiscard]] virtual bool tries_variants() const { return false; }
  /// Does it want to know what a search will ask for? Every candidate of the search is planned once more for that; kernels that are
  /// compiled together use all cores.
  [[nodiscard]] virtual bool wants_notice() const { return false; }
  /// The default plan, which is priced before all others: from here on its kernels may be compiled.
  virtual void begin(const region::Plan&) {}
  /// The regions of this plan, some of them new, will be priced; `last`: no more plans follow, and this one is empty.
  virtual void notice(const region::Plan&, bool /*last*/) {}
  [[nodiscard]] virtual CostSource source() const = 0;
};

/// The providers' estimates (Offer::cost). Stateless.
class Estimates final : public Costs {
 public:
  [[nodiscard]] Result<std::vector<TacticTime>> price(const region::Region&, const region::Plan&,
                                                      const std::vector<region::Offer>& offers) override;
  [[nodiscard]] CostSource source() const override { return CostSource::estimates; }
};

}  // namespace octavo::plan
