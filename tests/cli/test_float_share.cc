// When a build for a GPU names float16: layers in float32 take more than a third of the time, and it is not allowed.
#include <gtest/gtest.h>

#include "cli/commands/float_share.h"

namespace octavo::cli {
namespace {

region::Region layer(region::Precision precision, double seconds, bool weighted = true) {
  region::Region r;
  r.precision = precision, r.seconds = seconds;
  r.tactic.provider = "cuda";
  r.stages.emplace_back();
  if (weighted) r.stages[0].anchor.weights.emplace();
  return r;
}

TEST(FloatShare, NamesTheShareAndTheOption) {
  region::Plan plan;
  plan.cost_source = "estimates";
  plan.regions = {layer(ir::DType::f32, 4e-6), layer(region::Work::int8, 3e-6), layer(ir::DType::f32, 3e-6, false)};
  EXPECT_EQ(
      float_share(plan, {}),
      "40 % of the estimated time is spent in layers in float32; --allow int8,float32,float16 computes them in float16, which "
      "rounds more (docs/precision.md)\n");
  plan::PlanOptions allowed;
  allowed.allowed.insert("float16");
  EXPECT_EQ(float_share(plan, allowed), "");
  plan.regions[0].seconds = 2e-6;
  EXPECT_EQ(float_share(plan, {}), "") << "a quarter";
  plan.regions[0].seconds = 4e-6, plan.regions[0].precision = ir::DType::f16;
  EXPECT_EQ(float_share(plan, {}), "");
  plan.regions[0] = layer(ir::DType::f32, 4e-6);
  plan.regions[0].tactic.provider = "cpu";
  EXPECT_EQ(float_share(plan, {}), "") << "a processor";
  EXPECT_EQ(float_share(region::Plan{}, {}), "");
}

}  // namespace
}  // namespace octavo::cli
