// Costs for tests of the planner.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "plan/cost.h"
#include "region/key.h"

namespace octavo::testing {

/// Arbitrary but repeatable times: every key and tactic has its own, so that every kind of choice is taken somewhere.
class ArbitraryCosts : public plan::Costs {
 public:
  explicit ArbitraryCosts(std::uint64_t seed) : seed_(seed) {}
  Result<std::vector<plan::TacticTime>> price(const region::Region& r, const region::Plan& p,
                                              const std::vector<region::Offer>& offers) override {
    std::vector<plan::TacticTime> out;
    for (const region::Offer& o : offers) {
      const std::string text = region::key(r, p) + o.tactic.name();
      const std::uint64_t h = hash64({reinterpret_cast<const std::byte*>(text.data()), text.size()}, seed_);
      out.push_back({o.refusal.empty() ? 1e-6 * static_cast<double>(1 + h % 1000) : -1, plan::TimeSource::measured});
    }
    return out;
  }
  Result<std::optional<Pair>> compare(const region::Plan& a, const region::Plan& b) override {
    if (!whole_plans) return std::optional<Pair>();
    const std::string text = region::plan_hash(a) + region::plan_hash(b);
    const std::uint64_t h = hash64({reinterpret_cast<const std::byte*>(text.data()), text.size()}, seed_);
    return std::optional(Pair{1e-3, 1e-6 * static_cast<double>(900 + h % 200)});
  }
  bool whole_plans = false;  ///< it has times of whole plans, too
  plan::CostSource source() const override { return plan::CostSource::measured; }

 private:
  std::uint64_t seed_;
};

/// Every region costs the same: the fewest regions win, as chains of stages and side by side.
class CountRegions final : public plan::Costs {
 public:
  Result<std::vector<plan::TacticTime>> price(const region::Region&, const region::Plan&,
                                              const std::vector<region::Offer>& offers) override {
    std::vector<plan::TacticTime> out;
    for (const region::Offer& o : offers) out.push_back({o.refusal.empty() ? 1e-6 : -1, plan::TimeSource::measured});
    return out;
  }
  plan::CostSource source() const override { return plan::CostSource::measured; }
};

/// Tactics of families whose name contains a text cost a tenth.
class PreferFamily final : public plan::Costs {
 public:
  explicit PreferFamily(std::string part) : part_(std::move(part)) {}
  Result<std::vector<plan::TacticTime>> price(const region::Region&, const region::Plan&,
                                              const std::vector<region::Offer>& offers) override {
    std::vector<plan::TacticTime> out;
    for (const region::Offer& o : offers) {
      const bool preferred = o.tactic.family.find(part_) != std::string::npos;
      out.push_back({!o.refusal.empty() ? -1 : preferred ? 1e-7 : 1e-6, plan::TimeSource::measured});
    }
    return out;
  }
  plan::CostSource source() const override { return plan::CostSource::measured; }

 private:
  std::string part_;
};

}  // namespace octavo::testing
