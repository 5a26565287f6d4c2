// What a placement of Q/DQ costs, on plans made by hand: which float32 tensors count, their bytes and time, and the words.
#include "report/float_tensors.h"

#include <gtest/gtest.h>

namespace octavo::report {
namespace {

region::TensorRef ref(region::BufferId buffer, ir::DType type, std::string value) {
  region::TensorRef r;
  r.buffer = buffer, r.dtype = type, r.dims = {1, 8, 16, 16}, r.value = std::move(value);
  r.strides = ir::dense_strides(r.dims);
  if (type == ir::DType::u8) r.quantizer = ir::per_tensor(ir::DType::u8, 0.5F, 3);
  return r;
}

region::Region layer(std::string name, region::Precision precision, const std::vector<region::TensorRef>& reads,
                     std::vector<region::TensorRef> stores) {
  region::Region r;
  r.name = std::move(name), r.precision = precision, r.seconds = 1e-6;
  r.stages.emplace_back();
  for (const region::TensorRef& t : reads) r.stages[0].operands.push_back({t, {}});
  r.stages[0].stores = std::move(stores);
  return r;
}

constexpr ir::DType kFloat = ir::DType::f32, kCode = ir::DType::u8;

/// A residual block: "stem" stores codes for "a", and float32 for the sum of "b"; `last` reads the sum's codes.
region::Plan block() {
  region::Plan p;
  p.cost_source = "measured";
  p.buffers.resize(6);
  p.regions = {layer("stem", region::Work::int8, {ref(0, kCode, "x")}, {ref(1, kCode, "stem"), ref(2, kFloat, "stem")}),
               layer("a", region::Work::int8, {ref(1, kCode, "stem")}, {ref(3, kCode, "a")}),
               layer("b + sum", region::Work::int8, {ref(3, kCode, "a"), ref(2, kFloat, "stem")}, {ref(4, kCode, "sum")}),
               layer("last", region::Work::int8, {ref(4, kCode, "sum")}, {ref(5, kFloat, "y")})};
  p.buffers[5].kind = region::BufferKind::output;
  return p;
}

TEST(FloatTensors, AResidualBranchCounts) {
  const region::Plan p = block();
  const FloatTensors t = float_tensors_of(p);
  EXPECT_EQ(t.count, 1);
  EXPECT_EQ(t.with_codes, 1);
  EXPECT_EQ(t.bytes, 2 * 4 * 2048);
  EXPECT_NEAR(t.share_of_bytes, 16384. / (7 * 2048 + 3 * 8192), 1e-9) << "7 tensors of codes are moved, and 3 of float32";
  EXPECT_NEAR(t.share_of_time, 0.5, 1e-9) << "two of four regions";
  EXPECT_EQ(
      text(t, {.permit = true, .allow = "int8,float32,float16", .type = "float16"}),
      "1 tensor between regions is float32, because the placement of Q/DQ has no pair where it is read: writing and reading it "
      "moves at least 16.4 kB, 42 % of the bytes of a run; the first is \"stem\", which \"stem\" stores and \"b + sum\" reads\n"
      "  the regions that store or read it take 50 % of the measured time\n"
      "  --qdq permit lets the planner read it as 8-bit codes, which are stored already, and leave out other pairs, if that is "
      "faster; the outputs then differ from the model's, and build prints by how much (docs/implicit.md)\n"
      "  --allow int8,float32,float16 stores such tensors in float16 and computes float layers in it, which rounds more "
      "(docs/precision.md)\n");
}

TEST(FloatTensors, CopiesFromAndToTheHostAreNoTimeOfTheNetwork) {
  region::Plan p = block();
  p.regions.push_back(layer("copy", region::Work::transfer, {}, {}));
  p.regions.back().seconds = 100 * p.regions[0].seconds;
  const FloatTensors t = float_tensors_of(p);
  EXPECT_NEAR(t.share_of_time, 0.5, 1e-9) << "two of the four that compute";
  EXPECT_NE(text(t, {}).find("take 50 % of the measured time on the GPU, without the copies from and to the host\n"),
            std::string::npos);
}

TEST(FloatTensors, OnlyWaysThatHelpAreNamed) {
  region::Plan p = block();
  p.cost_source = "estimates";
  p.images = 3;
  p.regions[0].stages[0].stores[0] = ref(1, kFloat, "other");  // nothing stores codes
  p.regions[1].stages[0].operands[0].ref = ref(1, kFloat, "other");
  const std::string said = text(float_tensors_of(p), {.permit = true});
  EXPECT_EQ(said.find("2 tensors between regions are float32"), 0U) << said;
  EXPECT_NE(said.find("moves at least 98.3 kB"), std::string::npos) << "three images of two tensors: " << said;
  EXPECT_NE(said.find("take 75 % of the estimated time"), std::string::npos) << said;
  EXPECT_EQ(said.find("--qdq"), std::string::npos) << "there are no codes to read: " << said;
  for (region::Region& r : p.regions) r.seconds = -1;
  EXPECT_EQ(text(float_tensors_of(p), {}).find("time"), std::string::npos) << "the plan has no times";
}

TEST(FloatTensors, WhatIsNoTensorOfAPlacement) {
  region::Plan p = block();
  p.regions[2].stages[0].operands.pop_back();
  EXPECT_EQ(float_tensors_of(p).count, 0) << "nobody reads it";
  p = block();
  p.regions[2].precision = region::Work::move;
  EXPECT_EQ(float_tensors_of(p).count, 0) << "a copy reads it";
  p = block();
  p.regions[0].precision = region::Work::transfer;
  EXPECT_EQ(float_tensors_of(p).count, 0) << "a transfer stores it";
  p = block();
  p.buffers[2].kind = region::BufferKind::output;
  EXPECT_EQ(float_tensors_of(p).count, 0) << "an output of the network is what the model says";
  p = block();
  p.regions[0].precision = p.regions[2].precision = ir::DType::f32;
  EXPECT_EQ(float_tensors_of(p).count, 0) << "both regions are float";
  EXPECT_EQ(text(float_tensors_of(p), {.permit = true}), "");
  p.regions[2].precision = region::Work::int8;
  EXPECT_EQ(float_tensors_of(p).count, 1) << "a float layer stores it for an int8 one";
}

TEST(FloatTensors, LessThanAHundredthOfTheBytesIsNotSaid) {
  region::Plan p = block();
  for (region::TensorRef* t : {&p.regions[0].stages[0].stores[1], &p.regions[2].stages[0].operands[1].ref}) t->dims = {1, 1, 4, 4};
  const FloatTensors t = float_tensors_of(p);
  EXPECT_EQ(t.count, 1);
  EXPECT_FALSE(t.matter());
  EXPECT_EQ(text(t, {.permit = true}), "");
}

}  // namespace
}  // namespace octavo::report
