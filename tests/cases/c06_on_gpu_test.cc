// C6 on a GPU: the first convolution and its MaxPool as one kernel is a choice with a price, in every form alike. Nothing is run here.
#include <algorithm>

#include "api/pipeline.h"
#include "cases/judge.h"
#include "plan/plan.h"

namespace octavo::cases {
namespace {

constexpr const char* kFused = "conv.u8s8.rows_pool";

Net stem(Form form, bool before, bool behind, std::int64_t batch = 8) {
  Net n(form, 22);
  ir::ValueId x = n.relu(n.conv(n.pair(n.input("x", {batch, 3, 64, 64}), 0.02F), 64, {.kernel = 7, .stride = 2, .pad = 3}));
  if (before) x = n.pair(x, 0.03F);
  x = n.max_pool(x, 3, 2, 1);
  if (behind) x = n.pair(x, 0.03F);
  n.output(n.conv(x, 64, {.kernel = 1}));
  return n;
}

region::Plan planned(const Net& net, const plan::PlanOptions& how = {}) {
  api::PipelineOptions options;
  options.device = "cuda";
  options.plan = how;
  options.plan.threads = 1;
  options.plan.ranges = ir::symmetric(net.ranges);
  const auto providers = api::providers("cuda");
  EXPECT_TRUE(providers) << providers.error().message;
  auto out = plan::make_plan(net.graph, *providers, api::planner_options(options, {}));
  EXPECT_TRUE(out) << out.error().message;
  return out ? std::move(out->plan) : region::Plan();
}

bool fused(const region::Plan& p) {
  return std::any_of(p.regions.begin(), p.regions.end(), [](const region::Region& r) { return r.tactic.family == kFused; });
}
const region::Decision* decision(const region::Plan& p) {
  const auto d = std::find_if(p.decisions.begin(), p.decisions.end(), [](const auto& x) { return x.choice == "fuse-conv-pool"; });
  return d == p.decisions.end() ? nullptr : &*d;
}

/// Every tactic costs alike, but for the one of both.
class Prices final : public plan::Costs {
 public:
  explicit Prices(double both) : both_(both) {}
  Result<std::vector<plan::TacticTime>> price(const region::Region&, const region::Plan&,
                                              const std::vector<region::Offer>& offers) override {
    std::vector<plan::TacticTime> out;
    for (const region::Offer& o : offers)
      out.push_back({!o.refusal.empty() ? -1 : o.tactic.family == kFused ? both_ : 1e-5, plan::TimeSource::measured});
    return out;
  }
  plan::CostSource source() const override { return plan::CostSource::measured; }

 private:
  double both_;
};

TEST(C06ConvPoolOnGpu, EveryFormOffersBothWithTheirPrices) {
  const region::Plan first = planned(stem(Form::explicit_qdq, false, true));
  ASSERT_NE(decision(first), nullptr) << reasons(first);
  EXPECT_EQ(decision(first)->candidates.size(), 2U);
  for (const auto& c : decision(first)->candidates) EXPECT_GT(c.seconds, 0) << reasons(first);
  for (const Form form : {Form::explicit_qdq, Form::exported, Form::fake_quant, Form::counterpart}) {
    for (const bool behind : {false, true}) {
      const region::Plan p = planned(stem(form, true, behind));
      EXPECT_NE(decision(p), nullptr) << reasons(p);
      EXPECT_EQ(region::plan_hash(p), region::plan_hash(first)) << reasons(p);
    }
  }
}

TEST(C06ConvPoolOnGpu, PricesDecideFromEffort0On) {
  const Net net = stem(Form::explicit_qdq, false, true, 1);
  EXPECT_TRUE(fused(planned(net))) << "a launch less, and next to nothing computed twice";
  EXPECT_FALSE(fused(planned(net, {.disabled = {"fuse-conv-pool"}})));
  for (const int effort : {1, 2}) {
    Prices dear(3e-5), cheap(1.5e-5);  // of two regions: 2e-5
    const region::Plan apart = planned(net, {.effort = effort, .costs = &dear}),
                       joined = planned(net, {.effort = effort, .costs = &cheap});
    EXPECT_FALSE(fused(apart)) << reasons(apart);
    EXPECT_TRUE(fused(joined)) << reasons(joined);
    ASSERT_NE(decision(apart), nullptr);
    EXPECT_EQ(decision(apart)->chosen, 1U) << reasons(apart);
  }
}

}  // namespace
}  // namespace octavo::cases
