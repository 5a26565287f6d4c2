// Which of two almost equally fast tactics a model's second set of shapes gets: the one whose packed constants the first set has already.
#include <gtest/gtest.h>

#include "base/causes/plan_search.h"
#include "cpu/provider.h"
#include "ir/text.h"
#include "plan/decided.h"
#include "plan/memo.h"
#include "plan/plan.h"
#include "plan/search/price.h"

namespace octavo {
namespace {

/// Offers the families a, b and c. What b packs is known to be the same for all shapes, as what c packs; a says nothing about it.
class Families final : public region::Provider {
 public:
  std::string_view name() const override { return "families"; }
  static region::Tactic tactic(const std::string& family) {
    region::Tactic t;
    t.provider = "families", t.family = family;
    return t;
  }
  std::vector<region::Offer> offers(const region::Region&, const region::Plan&) const override {
    std::vector<region::Offer> out;
    for (const char* family : {"a", "b", "c"}) out.push_back({tactic(family), {}, 1});
    return out;
  }
  Result<region::Artifact> compile(const region::Region&, const region::Plan&, const region::Tactic&) const override {
    return region::Artifact();
  }
  Result<std::unique_ptr<region::Kernel>> load(const region::Region&, const region::Plan&,
                                               const region::ArtifactView&) const override {
    return fail(ErrorKind::unsupported, "not loaded");
  }
  void forget() const override { ++forgotten; }
  mutable int forgotten = 0;
  std::optional<std::string> packed_layout(const region::Region& r, const region::Plan&) const override {
    return r.tactic.family == "a" ? std::nullopt : std::optional("rows of " + r.tactic.family);
  }
};

class Times final : public plan::Costs {
 public:
  explicit Times(std::vector<double> seconds) : seconds_(std::move(seconds)) {}
  Result<std::vector<plan::TacticTime>> price(const region::Region&, const region::Plan&,
                                              const std::vector<region::Offer>&) override {
    std::vector<plan::TacticTime> out;
    for (const double s : seconds_) out.push_back({s, plan::TimeSource::measured});
    return out;
  }
  plan::CostSource source() const override { return plan::CostSource::measured; }

 private:
  std::vector<double> seconds_;
};

struct Vote {
  std::string family;
  Cause why{};
};

/// Where the first set of shapes has tactic `before` (empty: there is none), and the times of a, b and c are these.
Vote vote(const std::string& before, const std::vector<double>& seconds, bool prefers = true) {
  auto g = ir::parse(R"(
graph "g"
x = input : f32[8,16]
w = constant f32[16,4] seed:1
y = gemm x w
output y
)");
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  auto planned = plan::make_plan(*g, cpu::providers(), {});
  EXPECT_TRUE(planned) << (planned ? "" : planned.error().message);
  region::Plan& plan = planned->plan;
  EXPECT_EQ(plan.regions.size(), 1U);
  plan::PlanOptions options;
  if (!before.empty()) {
    plan.regions[0].tactic = Families::tactic(before);
    auto decided = std::make_shared<plan::Decided>();
    plan::keep_tactics(plan, *decided);
    decided->from = "x [8,16]";
    decided->prefers = prefers;
    options.follow = decided;
  }
  const Families provider;
  const std::vector<const region::Provider*> providers{&provider};
  Times times(seconds);
  plan::Memo memo(providers);
  const plan::PlanContext context{providers, options, times, memo};
  const auto ballot = plan::vote(plan.regions[0], plan, context);
  EXPECT_TRUE(ballot) << (ballot ? "" : ballot.error().message);
  if (!ballot || ballot->winner < 0) return {};
  return {ballot->offers[static_cast<std::size_t>(ballot->winner)].tactic.family, ballot->why.cause};
}

TEST(Memo, ProvidersForgetWhenAPlanningEnds) {
  const Families provider;
  const std::vector<const region::Provider*> providers{&provider};
  {
    const plan::Memo memo(providers);
    EXPECT_EQ(provider.forgotten, 0);
  }
  EXPECT_EQ(provider.forgotten, 1);
}

TEST(SharedConstants, AlmostTheFastestIsTakenWhereItsConstantsAreThere) {
  EXPECT_EQ(vote("c", {1, 1.2, 1.04}).family, "c");
  EXPECT_EQ(vote("c", {1, 1.2, 1.04}).why, cause::tactic_shares_constants);
  EXPECT_EQ(vote("b", {1.2, 1.04, 1}).family, "b");
}

TEST(SharedConstants, TheFastestIsTakenOtherwise) {
  EXPECT_EQ(vote("", {1, 1.2, 1.04}).family, "a");                 // the first set of shapes
  EXPECT_EQ(vote("c", {1, 1.2, 1.06}).family, "a");                // too slow
  EXPECT_EQ(vote("c", {1, 1.2, -1}).family, "a");                  // not timed
  EXPECT_EQ(vote("a", {1.04, 1.2, 1}).family, "c");                // nobody knows what it packs
  EXPECT_EQ(vote("d", {1, 1.04, 1.04}).family, "a");               // it refuses these shapes
  EXPECT_EQ(vote("c", {1.2, 1.1, 1}).why, cause::tactic_fastest);  // it is the fastest anyway
  EXPECT_EQ(vote("c", {1, 1.2, 1.04}, false).family, "a");         // decisions that are taken over are no preferences
}

}  // namespace
}  // namespace octavo
