// float16 as a type to compute in and to store: what the model says, what is allowed, what stays wider and why; plans compute what the graph says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/causes/plan_precision.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "plan/candidates/magnitudes.h"
#include "plan/candidates/narrow.h"
#include "plan/decided_json.h"
#include "plan/plan.h"
#include "reference/evaluate.h"
#include "reference/oracle_provider.h"
#include "report/sentences.h"
#include "support/feeds.h"
#include "support/run_plan.h"

namespace octavo {
namespace {

using ir::DType;

ir::Graph parsed(const std::string& text) {
  auto g = ir::parse("graph \"g\"\n" + text);
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  return g ? std::move(*g) : ir::Graph{};
}

const std::vector<const region::Provider*>& oracle() {
  static const std::vector<const region::Provider*> providers{&reference::oracle_provider()};
  return providers;
}

plan::Planned planned(const std::string& text, const plan::PlanOptions& o) {
  auto p = plan::make_plan(parsed(text), oracle(), o);
  EXPECT_TRUE(p) << (p ? "" : p.error().message);
  if (!p) return {};
  EXPECT_TRUE(region::verify(p->plan));
  return std::move(*p);
}

/// The same bits in the plan's regions and in the graph; and, unless `exact`, others than without float16.
void expect_same(const plan::Planned& p, const std::string& text, bool exact = false) {
  const auto feeds = testing::seeded_feeds(p.graph, 7);
  const auto want = reference::evaluate(p.graph, feeds), plain = reference::evaluate(parsed(text), feeds);
  const auto got = testing::run_plan(p.plan, oracle(), feeds, false);
  ASSERT_TRUE(want && got && plain);
  EXPECT_EQ(testing::first_difference(*want, *got), "");
  EXPECT_EQ(testing::first_difference(*want, *plain) == "", exact) << "rounded";
}

/// Types of what regions read of others' results: "relu:f16", by the name of the value.
std::set<std::string> read_types(const region::Plan& p) {
  std::set<std::string> out;
  const auto add = [&](const region::TensorRef& t) {
    if (p.buffers[static_cast<std::size_t>(t.buffer)].kind == region::BufferKind::arena)
      out.insert(t.value + ":" + std::string(ir::name_of(t.dtype)));
  };
  for (const region::Region& r : p.regions) {
    for (const region::Stage& s : r.stages) {
      for (const auto& t : s.anchor.inputs) add(t);
      for (const auto& o : s.operands) add(o.ref);
    }
  }
  return out;
}

/// The region that computes the node, not a pass that rounds its input.
const region::Region& region_of(const plan::Planned& p, const std::string& node) {
  static const region::Region none;
  for (const region::Region& r : p.plan.regions) {
    if (r.onnx_nodes.contains(node) && !r.stages.back().anchor.none()) return r;
  }
  ADD_FAILURE() << "no region of " << node;
  return none;
}

// Norms, products with constant weights, a residual stream, attention.
const std::string kBlock = R"(x = input : f32[2,6,8]
g1 = constant f32[8] seed:1
b1 = constant f32[8] seed:2
wq = constant f32[8,8] seed:3
wk = constant f32[8,8] seed:4
wo = constant f32[8,8] seed:5
h = mul x g1 from {"scale"}
n = layer_norm h g1 b1 {axis=2, epsilon=1e-5} from {"norm"}
n2 = reshape n {shape=[12,8]} from {"flat"}
q = gemm n2 wq from {"q"}
k = gemm n2 wk from {"k"}
q3 = reshape q {shape=[2,6,8]} from {"q3"}
k3 = reshape k {shape=[2,6,8]} from {"k3"}
kt = transpose k3 {perm=[0,2,1]} from {"turn"}
s = matmul q3 kt from {"scores"}
p = softmax s {axis=2} from {"softmax"}
o = matmul p q3 from {"mixed"}
o2 = reshape o {shape=[12,8]} from {"o2"}
y = gemm o2 wo from {"out"}
y3 = reshape y {shape=[2,6,8]} from {"y3"}
r = add y3 h from {"residual"}
m = layer_norm r g1 b1 {axis=2, epsilon=1e-5} from {"second"}
e = add m r from {"sum"}
output e
)";

plan::PlanOptions all_of(const std::string& text, DType type, const std::set<std::string>& wide = {}) {
  plan::PlanOptions o;
  const ir::Graph g = parsed(text);
  for (const ir::NodeId id : g.order()) {
    for (const std::string& node : g.node(id).origin) o.model_types[node] = wide.contains(node) ? DType::f32 : type;
  }
  return o;
}

TEST(Float16, AModelOfFloat16ComputesInItAndStoresIt) {
  const plan::Planned p = planned(kBlock, all_of(kBlock, DType::f16));
  for (const char* node : {"q", "k", "scores", "mixed", "out"}) {
    const region::Region& r = region_of(p, node);
    EXPECT_EQ(r.stages.back().anchor.inputs[0].dtype, DType::f16) << node;
    if (r.stages.size() == 1) EXPECT_EQ(r.precision, DType::f16) << node;
  }
  EXPECT_NE(report::sentences(region_of(p, "q").reasons).find("its tensors are float16 in the model"), std::string::npos);
  const std::set<std::string> read = read_types(p.plan);
  for (const char* tensor : {"h:f16", "n2:f16", "r:f16"}) EXPECT_TRUE(read.contains(tensor)) << tensor;
  for (const char* tensor : {"h:f32", "n:f32", "n2:f32", "r:f32", "q3:f32", "p:f32"}) EXPECT_FALSE(read.contains(tensor)) << tensor;
  expect_same(p, kBlock);
}

TEST(Float16, ABfloat16ModelLikewise) {
  const plan::Planned p = planned(kBlock, all_of(kBlock, DType::bf16));
  EXPECT_EQ(region_of(p, "q").precision, DType::bf16);
  EXPECT_TRUE(read_types(p.plan).contains("h:bf16"));
  expect_same(p, kBlock);
}

TEST(Float16, WhatTheModelComputesInFloat32IsStoredAsSuch) {
  const plan::Planned p = planned(kBlock, all_of(kBlock, DType::f16, {"scale", "residual", "out"}));
  const std::set<std::string> read = read_types(p.plan);
  EXPECT_TRUE(read.contains("h:f32") && !read.contains("h:f16"));
  EXPECT_EQ(region_of(p, "out").precision, DType::f32);
  EXPECT_EQ(region_of(p, "q").precision, DType::f16);
  expect_same(p, kBlock);
}

TEST(Float16, NothingSaidNothingChanges) {
  EXPECT_EQ(region::plan_hash(planned(kBlock, all_of(kBlock, DType::f32)).plan), region::plan_hash(planned(kBlock, {}).plan));
  expect_same(planned(kBlock, {}), kBlock, true);
}

TEST(Float16, AllowedItIsTakenAndTensorsBetweenRegionsAreHalfAsLarge) {
  plan::PlanOptions o;
  o.allowed.insert("float16");
  const plan::Planned p = planned(kBlock, o);
  const std::set<std::string> read = read_types(p.plan);
  EXPECT_TRUE(read.contains("h:f16") && read.contains("r:f16") && !read.contains("h:f32") && !read.contains("r:f32"));
  EXPECT_EQ(p.permitted.float16.size(), 5U);
  EXPECT_EQ(p.permitted.float16_layers, 3);
  EXPECT_NE(report::sentences(region_of(p, "q").reasons).find("float16 is among the allowed types"), std::string::npos);
  expect_same(p, kBlock);
}

TEST(Float16, ARuleKeepsATensorAndALayerWide) {
  plan::PlanOptions o;
  o.allowed.insert("float16");
  o.precisions = {{"scale", "float32"}, {"out", "float32"}};
  const plan::Planned p = planned(kBlock, o);
  EXPECT_TRUE(read_types(p.plan).contains("h:f32"));
  EXPECT_EQ(region_of(p, "out").precision, DType::f32);
  expect_same(p, kBlock);
}

constexpr const char* kConv = " {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]}";
std::string convs(const std::string& weights) {
  return "x = input : f32[1,4,5,5]\nw1 = constant f32[4,4,3,3] seed:1\nw2 = constant f32[4,4,3,3] seed:2\nw3 = " + weights +
         "\na = conv x w1" + kConv + " from {\"conv1\"}\nb = relu a from {\"relu\"}\nc = conv b w2" + kConv +
         " from {\"conv2\"}\nd = add c b from {\"add\"}\ne = conv d w3" + kConv + " from {\"conv3\"}\noutput e\n";
}

TEST(Float16, ALayerWhoseTensorsReachTheEndOfFloat16StaysWider) {
  const std::string text = convs("constant f32[4,4,3,3] seed:3");
  plan::PlanOptions o;
  o.allowed = {"float16", "float32"};
  o.ranges = ir::symmetric({{"a", 1.0F}, {"b", 300.0F}, {"d", 1.0F}});  // steps: b reaches 127 * 300
  plan::Planned p = planned(text, o);
  EXPECT_EQ(region_of(p, "conv2").precision, DType::f32);
  EXPECT_EQ(region_of(p, "conv3").precision, DType::f16);
  EXPECT_NE(report::sentences(region_of(p, "conv2").reasons).find("not float16: the range of tensor \"b\" reaches 38100"),
            std::string::npos)
      << report::sentences(region_of(p, "conv2").reasons);
  EXPECT_FALSE(read_types(p.plan).contains("b:f16"));
  expect_same(p, text);
  o.precisions = {{"conv2", "float16"}};
  const auto refused = plan::make_plan(parsed(text), oracle(), o);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("cannot be kept for node \"conv2\": the range of tensor \"b\" reaches 38100"),
            std::string::npos)
      << refused.error().message;
}

TEST(Float16, WeightsBeyondFloat16KeepTheLayerWider) {
  std::string large = "constant f32[4,4,3,3] (70000";
  for (int i = 1; i < 144; ++i) large += ", 0.5";
  const std::string text = convs(large + ")");
  plan::PlanOptions o;
  o.allowed.insert("float16");
  const plan::Planned p = planned(text, o);
  EXPECT_EQ(region_of(p, "conv3").precision, DType::f32);
  EXPECT_EQ(region_of(p, "conv1").precision, DType::f16);
  EXPECT_EQ(p.permitted.not_float16.at("conv3"), because<cause::weights_beyond_float16>(std::string("w3"), 70000.0, 65504.0));
  expect_same(p, text);
  o.allowed.insert("bfloat16");
  o.allowed.erase("float32");
  EXPECT_EQ(region_of(planned(text, o), "conv3").precision, DType::bf16) << "which has the range of float32";
}

std::string error_of(const std::string& text, const plan::PlanOptions& o) {
  const auto p = plan::make_plan(parsed(text), oracle(), o);
  return p ? "" : p.error().message;
}

TEST(Float16, WithoutFloat32EveryLayerComputesInFloat16) {
  plan::PlanOptions o;
  o.allowed = {"int8", "float16"};
  const plan::Planned p = planned(kBlock, o);
  EXPECT_EQ(p.permitted.float16_layers, 3);
  EXPECT_EQ(p.permitted.float_layers, 0);
  expect_same(p, kBlock);
}

TEST(Float16, WithoutFloat32ALayerThatCannotBeFloat16IsAnError) {
  std::string large = "constant f32[4,4,3,3] (70000";
  for (int i = 1; i < 144; ++i) large += ", 0.5";
  const std::string text = convs(large + ")");
  plan::PlanOptions o;
  o.allowed = {"int8", "float16"};
  EXPECT_EQ(error_of(text, o),
            "allowed types float16, int8: layer \"conv3\" can have none of them\n  int8: tensor \"d\" has no range\n  float16: its "
            "weights \"w3\" reach 70000, and float16 ends at 65504\n  allow float32 as well, or let a rule give this layer its "
            "type: --precision \"conv3=float32\"");
  o.precisions = {{"conv3", "float32"}};
  EXPECT_EQ(region_of(planned(text, o), "conv3").precision, DType::f32);
  o.precisions.clear();
  o.ranges = ir::symmetric({{"d", 0.01F}});
  EXPECT_EQ(region_of(planned(text, o), "conv3").precision, region::Work::int8) << "int8 is allowed, and has a range";
  o.effort = 2, o.max_error = 1e9;
  EXPECT_EQ(region_of(planned(text, o), "conv3").precision, region::Work::int8) << "no other type is compared";
  o = {};
  o.allowed = {"int8", "float16", "float32"};
  const plan::Planned wide = planned(text, o);
  EXPECT_NE(report::sentences(region_of(wide, "conv3").reasons).find("not float16: its weights \"w3\" reach 70000"),
            std::string::npos);
  o.allowed = {"int8", "float16"};
  o.ranges = ir::symmetric({{"a", 1.0F}, {"b", 300.0F}, {"d", 1.0F}});
  o.allowed = {"float16"};
  EXPECT_NE(error_of(convs("constant f32[4,4,3,3] seed:3"), o)
                .find("float16: the range of tensor \"b\" reaches 38100, and layers keep a wider type where a range reaches 32768"),
            std::string::npos);
}

TEST(Float16, OneTypeAloneHoldsForEveryLayer) {
  const std::string computed = "x = input : f32[1,4,5,5]\nw = input : f32[4,4,3,3]\na = conv x w" + std::string(kConv) +
                               " from {\"conv1\"}\noutput a\n";  // weights that a run brings
  for (const plan::LayerType type : {plan::LayerType("float16"), plan::LayerType("bfloat16")}) {
    plan::PlanOptions o;
    o.allowed = {type};
    EXPECT_NE(error_of(computed, o).find(std::string(type.name()) + ": its weights \"w\" are not a float32 constant"),
              std::string::npos)
        << type.name();
  }
  plan::PlanOptions o;
  o.allowed = {"int8"};
  EXPECT_NE(error_of(kBlock, o).find("layer \"q\" can have none of them\n  int8: tensor \"n2\" has no range"), std::string::npos)
      << error_of(kBlock, o);
}

/// conv1, then a factor, pooling, and conv2: "b" and what pools it reach the factor and more on any input.
std::string scaled(double factor) {
  return "x = input : f32[1,4,6,6]\nw1 = constant f32[4,4,3,3] seed:1\nw2 = constant f32[4,4,3,3] seed:2\nk = constant f32[] (" +
         std::to_string(factor) + ")\na = conv x w1" + kConv + " from {\"conv1\"}\nb = mul a k from {\"scale\"}\nm = max_pool b " +
         "{kernel=[2,2], pads=[0,0,0,0], strides=[1,1], dilations=[1,1]} from {\"pool\"}\nc = conv m w2" + kConv +
         " from {\"conv2\"}\nd = relu c from {\"relu\"}\noutput d\n";
}

TEST(Float16, WithoutRangesARandomInputShowsWhatOverflows) {
  plan::PlanOptions o;
  o.allowed.insert("float16");
  const std::string text = scaled(100000);
  const plan::Planned p = planned(text, o);
  ASSERT_TRUE(p.permitted.magnitudes);
  EXPECT_EQ(p.permitted.magnitudes->found, plan::SampledMagnitudes::Found::values);
  EXPECT_TRUE(p.permitted.magnitudes->large.contains("b") && p.permitted.magnitudes->large.contains("m"));
  EXPECT_FALSE(p.permitted.magnitudes->large.contains("a"));
  EXPECT_EQ(region_of(p, "conv1").precision, DType::f16);
  EXPECT_EQ(region_of(p, "conv2").precision, DType::f32);
  EXPECT_FALSE(read_types(p.plan).contains("b:f16"));
  const std::string why = report::sentences(region_of(p, "conv2").reasons);
  EXPECT_NE(why.find("not float16: tensor \"m\" reaches "), std::string::npos) << why;
  EXPECT_NE(
      why.find(" on one random input, which is no proof for real data; layers keep a wider type where a tensor reaches 32768"),
      std::string::npos)
      << why;
  EXPECT_EQ(region::plan_hash(planned(text, o).plan), region::plan_hash(p.plan)) << "the input is the same each time";
  const auto results = reference::evaluate(p.graph, testing::seeded_feeds(p.graph, 7));
  ASSERT_TRUE(results);
  for (const ir::Tensor& t : *results) {
    for (const float x : t.data<float>()) EXPECT_TRUE(std::isfinite(x));
  }

  o.allowed.erase("float32");
  EXPECT_NE(error_of(text, o).find("float16: tensor \"m\" reaches "), std::string::npos) << error_of(text, o);
  o.precisions = {{"conv2", "float16"}};
  EXPECT_EQ(region_of(planned(text, o), "conv2").precision, DType::f16) << "a rule asks for it";
  o.precisions.clear();
  o.allowed = {"float16", "float32"};
  o.ranges = ir::symmetric({{"m", 100.0F}, {"c", 100.0F}});  // steps: 12700
  EXPECT_EQ(region_of(planned(text, o), "conv2").precision, DType::f16) << "a range counts more";
}

TEST(Float16, OtherShapesFollowWhatTheRandomInputShowed) {
  plan::PlanOptions o;
  o.allowed.insert("float16");
  const plan::Planned first = planned(scaled(100000), o);
  auto decided = plan::decided_from_json(plan::to_json(first.decided));
  ASSERT_TRUE(decided);
  o.follow = std::make_shared<const plan::Decided>(std::move(*decided));
  std::string text = scaled(100000);
  text.replace(text.find("[1,4,6,6]"), 9, "[1,4,8,8]");
  const plan::Planned p = planned(text, o);
  EXPECT_EQ(region_of(p, "conv2").precision, DType::f32);
  EXPECT_EQ(p.decided.form, first.decided.form);
}

TEST(Float16, ModestMagnitudesChangeNothing) {
  plan::PlanOptions o;
  o.allowed.insert("float16");
  const plan::Planned p = planned(scaled(2), o);
  EXPECT_TRUE(p.permitted.magnitudes && p.permitted.magnitudes->large.empty());
  EXPECT_EQ(region_of(p, "conv2").precision, DType::f16);
  o.ranges = ir::symmetric({{"x", 1.0F}, {"a", 1.0F}, {"m", 1.0F}, {"c", 1.0F}});
  EXPECT_FALSE(planned(scaled(2), o).permitted.magnitudes) << "every layer has ranges";
  EXPECT_FALSE(planned(scaled(2), {}).permitted.magnitudes) << "float16 is not allowed";
  EXPECT_FALSE(planned(scaled(2), all_of(scaled(2), DType::f16)).permitted.magnitudes) << "the model says float16";
}

/// A mask of -3e38 that an integer input makes says nothing about the layers' magnitudes.
TEST(Float16, MasksFromIntegersAreNotMagnitudes) {
  const std::string text =
      "x = input : f32[1,4,5,5]\ni = input : s64[1,1,5,5]\nw1 = constant f32[4,4,3,3] seed:1\nw2 = constant f32[4,4,3,3] seed:2\nk "
      "= "
      "constant f32[] (-300000)\none = constant f32[] (1)\na = conv x w1" +
      std::string(kConv) +
      " from {\"conv1\"}\nf = cast i {to=\"f32\"} from {\"cast\"}\ns = sub one f from {\"not\"}\nn = mul s k from {\"mask\"}\nz = "
      "mul a s "
      "from {\"use\"}\nc = conv z w2" +
      kConv + " from {\"conv2\"}\no = add n n from {\"twice\"}\noutput c\noutput o\n";
  plan::PlanOptions o;
  o.allowed.insert("float16");
  const plan::Planned p = planned(text, o);
  ASSERT_TRUE(p.permitted.magnitudes);
  EXPECT_EQ(p.permitted.magnitudes->found, plan::SampledMagnitudes::Found::values);
  EXPECT_TRUE(p.permitted.magnitudes->large.empty());
}

TEST(Float16, AModelTooLargeForTheReferenceSaysSo) {
  const std::string text = "x = input : f32[1,64,256,256]\nw = constant f32[64,64,3,3] seed:1\na = conv x w" + std::string(kConv) +
                           " from {\"conv1\"}\noutput a\n";
  plan::PlanOptions o;
  o.allowed.insert("float16");
  const plan::Planned p = planned(text, o);
  ASSERT_TRUE(p.permitted.magnitudes);
  EXPECT_EQ(p.permitted.magnitudes->found, plan::SampledMagnitudes::Found::too_long);
  EXPECT_GT(p.permitted.magnitudes->seconds, plan::kMostEvaluation);
  EXPECT_EQ(region_of(p, "conv1").precision, DType::f16);
}

/// A caller's float16 tensor is read as it is.
TEST(Float16, AnInputOfFloat16IsNotWidenedInMemory) {
  std::string text = convs("constant f32[4,4,3,3] seed:3");
  text.replace(text.find("x = input : f32[1,4,5,5]\n"), 25,
               "i = input : f16[1,4,5,5]\nx = cast i {to=\"f32\"} from {\"input:i\"}\n");
  plan::PlanOptions o;
  o.allowed.insert("float16");
  const plan::Planned p = planned(text, o);
  for (const region::Region& r : p.plan.regions) {
    for (const region::Stage& s : r.stages) {
      for (const region::TensorRef& t : s.stores) EXPECT_TRUE(t.dtype == DType::f16 || t.value == "e") << r.name;
    }
  }
  expect_same(p, text);
}

TEST(Float16, EmulatedLayersComputeTheSameValuesInFloats) {
  const std::string text = convs("constant f32[4,4,3,3] seed:3");
  plan::PlanOptions o;
  o.precisions = {{"conv*", "float16"}};
  const plan::Planned small = planned(text, o);
  o.precisions = {{"conv*", "float16-emulated"}};
  const plan::Planned emulated = planned(text, o);
  for (const region::Region& r : emulated.plan.regions) EXPECT_NE(r.precision, DType::f16) << r.name;
  const auto feeds = testing::seeded_feeds(small.graph, 7);
  const auto want = reference::evaluate(small.graph, feeds), got = reference::evaluate(emulated.graph, feeds);
  ASSERT_TRUE(want && got);
  EXPECT_EQ(testing::first_difference(*want, *got), "");
  expect_same(emulated, text);
}

/// Rounding both sides of a comparison may turn its result: only where the model itself compares such.
TEST(Float16, ComparisonsReadFloat16OnlyWhereTheModelSaysSo) {
  const std::string text =
      "x = input : f32[1,4,5,5]\nw1 = constant f32[4,4,3,3] seed:1\nz = constant f32[] (0.25)\na = conv x w1" + std::string(kConv) +
      " from {\"conv1\"}\nb = max_pool a {kernel=[2,2], pads=[0,0,0,0], strides=[1,1], dilations=[1,1]} from {\"pool\"}\nl = slice "
      "a "
      "{starts=[0,0,0,0], ends=[1,4,4,4], steps=[1,1,1,1]} from {\"slice\"}\nc = less b l from {\"less\"}\nd = where c b l from "
      "{\"where\"}\noutput d\n";
  plan::PlanOptions o;
  o.allowed.insert("float16");
  EXPECT_TRUE(read_types(planned(text, o).plan).contains("a:f32"));
  const plan::Planned p = planned(text, all_of(text, DType::f16));
  EXPECT_FALSE(read_types(p.plan).contains("a:f32"));
  expect_same(p, text);
}

}  // namespace
}  // namespace octavo
