// A depthwise convolution and the 1x1 convolution behind it on a GPU: one kernel or two is a choice with a price. Nothing is run here.
#include <algorithm>

#include "api/pipeline.h"
#include "cases/judge.h"
#include "plan/plan.h"

namespace octavo::cases {
namespace {

constexpr const char* kFused = "conv.u8s8.depthwise_pointwise";

/// As in an inverted residual block: the 1x1 convolution in front, the depthwise one, the 1x1 one behind it, an addition.
Net block(Form form, std::int64_t batch) {
  Net n(form, 5);
  const ir::ValueId x = n.pair(n.conv(n.pair(n.input("x", {batch, 24, 28, 28}), 0.02F), 24, {.kernel = 1}), 0.03F);
  ir::ValueId y = n.pair(n.relu(n.conv(x, 144, {.kernel = 1})), 0.03F);
  y = n.pair(n.relu(n.conv(y, 144, {.kernel = 3, .pad = 1, .group = 144})), 0.03F);
  y = n.pair(n.conv(y, 24, {.kernel = 1}), 0.03F);
  n.output(n.conv(n.pair(n.add(x, y), 0.04F), 8, {.kernel = 1}));
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
/// The priced decision about stages.
const region::Decision* decision(const region::Plan& p) {
  const auto d = std::find_if(p.decisions.begin(), p.decisions.end(), [](const region::Decision& x) {
    return x.choice == "stages" && x.candidates.size() == 2 && x.candidates[0].seconds > 0 && x.candidates[1].seconds > 0;
  });
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

TEST(DepthwiseOnGpu, EveryFormOffersBothWithTheirPrices) {
  const region::Plan first = planned(block(Form::explicit_qdq, 8));
  ASSERT_NE(decision(first), nullptr) << reasons(first);
  EXPECT_EQ(decision(first)->candidates[0].name, "separate");
  EXPECT_EQ(decision(first)->candidates[1].name, "row-tiles");
  for (const Form form : {Form::exported, Form::fake_quant, Form::counterpart})
    EXPECT_NE(decision(planned(block(form, 8))), nullptr);
}

TEST(DepthwiseOnGpu, PricesDecideFromEffort1On) {
  const Net net = block(Form::explicit_qdq, 8);
  EXPECT_FALSE(fused(planned(net, {.disabled = {"stages"}})));
  EXPECT_TRUE(fused(planned(net, {.forced = {"stages"}})));
  for (const int effort : {1, 2}) {
    Prices dear(3e-5), cheap(1.5e-5);  // of two regions: 2e-5
    const region::Plan apart = planned(net, {.effort = effort, .costs = &dear}),
                       joined = planned(net, {.effort = effort, .costs = &cheap});
    EXPECT_FALSE(fused(apart)) << reasons(apart);
    EXPECT_TRUE(fused(joined)) << reasons(joined);
    ASSERT_NE(decision(apart), nullptr);
    EXPECT_EQ(decision(apart)->chosen, 0U) << reasons(apart);
    EXPECT_NE(reasons(apart).find(" 20.0"), std::string::npos) << reasons(apart);  // explain shows both
    EXPECT_NE(reasons(apart).find(" 30.0"), std::string::npos) << reasons(apart);
  }
}

}  // namespace
}  // namespace octavo::cases
