// When a build names --allow and --qdq permit: layers in float32 take more than a third of a GPU's time, or a placement of Q/DQ keeps tensors in float32.
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
  EXPECT_EQ(float_share(plan, {}, {}),
            "40 % of the estimated time on the GPU is spent in layers in float32; --allow int8,float32,float16 computes them in "
            "float16, which "
            "rounds more (docs/precision.md)\n");
  plan::PlanOptions allowed;
  allowed.allowed.insert("float16");
  EXPECT_EQ(float_share(plan, allowed, {}), "");
  plan.regions[0].seconds = 2e-6;
  EXPECT_EQ(float_share(plan, {}, {}), "") << "a quarter";
  plan.regions[0].seconds = 4e-6, plan.regions[0].precision = ir::DType::f16;
  EXPECT_EQ(float_share(plan, {}, {}), "");
  plan.regions[0] = layer(ir::DType::f32, 4e-6);
  plan.regions[0].tactic.provider = "cpu";
  EXPECT_EQ(float_share(plan, {}, {}), "") << "a processor";
  EXPECT_EQ(float_share(region::Plan{}, {}, {}), "");
}

TEST(FloatShare, CopiesFromAndToTheHostAreNoTimeOfTheNetwork) {
  region::Plan plan;
  plan.regions = {layer(region::Work::transfer, 1e-3, false), layer(ir::DType::f32, 4e-6), layer(region::Work::int8, 6e-6)};
  EXPECT_TRUE(float_share(plan, {}, {}).starts_with("40 % of the estimated time on the GPU")) << float_share(plan, {}, {});
}

TEST(FloatShare, LayersThatARuleKeepsAreNotCounted) {
  region::Plan plan;
  plan.regions = {layer(ir::DType::f32, 4e-6), layer(region::Work::int8, 1e-6)};
  plan.regions[0].onnx_nodes = {"head"};
  EXPECT_EQ(float_share(plan, {}, {"head"}), "");
  EXPECT_NE(float_share(plan, {}, {"body"}), "");
}

TEST(FloatShare, KeepsTheTypesThatAreAllowed) {
  region::Plan plan;
  plan.regions = {layer(ir::DType::f32, 4e-6)};
  plan::PlanOptions options;
  options.allowed = {"bfloat16", "float32", "int8", "tf32"};
  EXPECT_NE(float_share(plan, options, {}).find("--allow int8,float32,bfloat16,float16,tf32 computes"), std::string::npos)
      << float_share(plan, options, {});
}

/// An int8 layer that stores float32 for another one, on a device.
region::Plan residual(const char* provider) {
  region::Plan plan;
  plan.cost_source = "estimates";
  plan.buffers.resize(1);
  region::TensorRef t;
  t.buffer = 0, t.dims = {1, 8, 16, 16}, t.strides = ir::dense_strides(t.dims), t.value = "sum";
  plan.regions = {layer(region::Work::int8, 1e-6), layer(region::Work::int8, 1e-6)};
  for (region::Region& r : plan.regions) r.tactic.provider = provider;
  plan.regions[0].name = "add", plan.regions[1].name = "next";
  plan.regions[0].stages[0].stores = {t};
  plan.regions[1].stages[0].operands = {{t, {}}};
  return plan;
}

TEST(PlacementCost, NamesTheOptionsOfTheDevice) {
  plan::PlanOptions options;
  options.allowed.insert("bfloat16");
  const std::string on_gpu = placement_cost(residual("cuda"), options), on_cpu = placement_cost(residual("cpu"), options);
  EXPECT_NE(on_gpu.find("--allow int8,float32,bfloat16,float16 stores such tensors in float16"), std::string::npos) << on_gpu;
  EXPECT_NE(on_cpu.find("1 tensor between regions is float32"), std::string::npos) << on_cpu;
  EXPECT_EQ(on_cpu.find("--allow"), std::string::npos) << "no kernel of a CPU computes in float16: " << on_cpu;
  options.allowed.insert("float16");
  EXPECT_EQ(placement_cost(residual("cuda"), options).find("--allow"), std::string::npos);
}

}  // namespace
}  // namespace octavo::cli
