// Pairs that become ranges: what is left of the graph, which pairs stay and why, and the plan that comes of it.
#include "plan/precision/permit_pairs.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "ir/verify.h"
#include "plan/plan.h"
#include "reference/oracle_provider.h"

namespace octavo {
namespace {

using Why = plan::PermittedPairs::Kept::Why;

ir::Graph parse(const std::string& text) {
  auto g = ir::parse(text);
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  return g ? std::move(*g) : ir::Graph{};
}

constexpr const char* kConv = "{dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]}";

std::string pair(const std::string& to, const std::string& from, const std::string& q) {
  return to + "_q = quantize " + from + " q=" + q + "\n" + to + " = dequantize " + to + "_q q=" + q + "\n";
}

/// conv -> pair -> clip -> pair -> conv -> pair -> output, with the pairs (or without them).
std::string network(bool pairs) {
  std::string t = "graph \"g\"\nx = input : f32[1,4,6,6]\nw1 = constant s8[4,4,3,3] q=s8(0.01,0) seed:1\n";
  t += "w2 = constant s8[4,4,3,3] q=s8(0.02,0) seed:2\n";
  const auto rounded = [&](const std::string& name, const std::string& scale) {
    if (!pairs) return name;
    t += pair(name + "_r", name, "s8(" + scale + ",0)");
    return name + "_r";
  };
  const std::string x = rounded("x", "0.01");
  t += "c1 = conv " + x + " w1 " + kConv + " from {\"conv1\"}\n";
  const std::string c1 = rounded("c1", "0.05");
  t += "r1 = clip " + c1 + " {max=1, min=0} from {\"clip1\"}\n";
  const std::string r1 = rounded("r1", "0.007874016");
  t += "c2 = conv " + r1 + " w2 " + kConv + " from {\"conv2\"}\n";
  return t + "output " + rounded("c2", "0.03") + "\n";
}

TEST(PermitPairs, PairsBecomeRangesAndTheRestStays) {
  ir::Graph g = parse(network(true));
  const auto pairs = plan::permit_pairs(g);
  ASSERT_TRUE(ir::verify(g));
  EXPECT_EQ(pairs.taken, 4);
  EXPECT_TRUE(pairs.kept.empty());
  ir::Ranges ranges;
  for (const ir::NodeId id : g.order()) {
    EXPECT_NE(g.node(id).op, ir::Op::quantize);
    EXPECT_NE(g.node(id).op, ir::Op::dequantize);
    for (const ir::ValueId v : g.node(id).outputs) {
      if (g.value(v).range) ranges[g.value(v).name] = *g.value(v).range;
    }
  }
  EXPECT_EQ(ranges, ir::symmetric({{"x", 0.01F}, {"c1", 0.05F}, {"r1", 0.007874016F}, {"c2", 0.03F}}));
}

TEST(PermitPairs, ThePlanIsThatOfTheFloatModelWithThoseRanges) {
  plan::PlanOptions permit, ranges;
  permit.permit_pairs = true;
  permit.forced = {"pairs"};  // whatever it costs
  ranges.ranges = ir::symmetric({{"x", 0.01F}, {"c1", 0.05F}, {"r1", 0.007874016F}, {"c2", 0.03F}});
  const auto explicit_plan = plan::make_plan(parse(network(true)), {&reference::oracle_provider()}, {});
  const auto permitted = plan::make_plan(parse(network(true)), {&reference::oracle_provider()}, permit);
  const auto counterpart = plan::make_plan(parse(network(false)), {&reference::oracle_provider()}, ranges);
  ASSERT_TRUE(explicit_plan && permitted && counterpart);
  EXPECT_EQ(region::plan_hash(permitted->plan), region::plan_hash(counterpart->plan));
  EXPECT_NE(region::plan_hash(permitted->plan), region::plan_hash(explicit_plan->plan)) << "the rounding before the clip is gone";
  EXPECT_EQ(permitted->permitted.int8_layers, 2);
  EXPECT_EQ(permitted->permitted.demanded_layers, 0);
}

TEST(PermitPairs, WhatARangeCannotSayIsStillDemanded) {
  const std::string head = "graph \"g\"\nx = input : f32[1,4,6,6]\ny = relu x\n";
  const auto kept = [&](const std::string& body) {
    ir::Graph g = parse(head + body);
    const auto pairs = plan::permit_pairs(g);
    EXPECT_TRUE(ir::verify(g));
    EXPECT_EQ(pairs.taken, 0) << body;
    EXPECT_EQ(pairs.kept.size(), 1U) << body;
    if (!pairs.kept.empty()) EXPECT_EQ(pairs.kept[0].tensor, "y");
    return pairs.kept.empty() ? Why::type : pairs.kept[0].why;
  };
  EXPECT_EQ(kept(pair("z", "y", "s8[axis=1](0.1,0.2,0.3,0.4;0,0,0,0)") + "output z\n"), Why::channels);
  EXPECT_EQ(kept(pair("z", "y", "s8(0.02,0)@f16") + "output z\n"), Why::type);
  EXPECT_EQ(kept(pair("z", "y", "s8(0.02,0)") + pair("v", "y", "s8(0.03,0)") + "output z\noutput v\n"), Why::other_scale);
}

TEST(PermitPairs, UnsignedCodesAroundTheMiddleAreARange) {
  ir::Graph g = parse("graph \"g\"\nx = input : f32[1,4,6,6]\n" + pair("z", "x", "u8(0.02,128)") + "r = relu z\noutput r\n");
  EXPECT_EQ(plan::permit_pairs(g).taken, 1);
  EXPECT_EQ(g.value(g.inputs[0]).range, ir::symmetric(0.02F));
}

TEST(PermitPairs, ZeroPointsStayWithTheRange) {
  ir::Graph g =
      parse("graph \"g\"\nx = input : f32[1,4,6,6]\ny = neg x\n" + pair("z", "y", "u8(0.02,3)") + "r = tanh z\noutput r\n");
  EXPECT_EQ(plan::permit_pairs(g).taken, 1);
  EXPECT_EQ(g.value(g.producer(g.outputs[0]).inputs[0]).range, ir::per_tensor(ir::DType::u8, 0.02F, 3));
  EXPECT_EQ(g.producer(g.producer(g.outputs[0]).inputs[0]).op, ir::Op::neg);
}

/// Exporters leave out a Relu or a Clip in front of a pair that saturates where it did.
TEST(PermitPairs, APairWithoutNegativeCodesStandsForTheReluThatIsNotThere) {
  for (const char* before : {"neg x", "relu x", "sigmoid x"}) {
    const bool negative = std::string(before) == "neg x";
    ir::Graph g = parse("graph \"g\"\nx = input : f32[1,4,6,6]\ny = " + std::string(before) + "\n" + pair("z", "y", "u8(0.02,0)") +
                        "r = tanh z\noutput r\n");
    EXPECT_EQ(plan::permit_pairs(g).taken, 1);
    ASSERT_TRUE(ir::verify(g));
    const ir::ValueId read = g.producer(g.outputs[0]).inputs[0];
    EXPECT_EQ(g.value(read).range, ir::per_tensor(ir::DType::u8, 0.02F)) << before;
    EXPECT_EQ(g.producer(read).op == ir::Op::clip, negative) << before;
    if (!negative) continue;
    EXPECT_EQ(ir::get_float(g.producer(read).attrs, "min", -1), 0);
    EXPECT_FLOAT_EQ(static_cast<float>(ir::get_float(g.producer(read).attrs, "max")), 255 * 0.02F);
  }
}

TEST(PermitPairs, OfAPairBehindAPairTheWiderScaleCounts) {
  for (const bool wider_first : {false, true}) {
    const std::string a = wider_first ? "s8(0.04,0)" : "s8(0.02,0)", b = wider_first ? "s8(0.02,0)" : "s8(0.04,0)";
    ir::Graph g =
        parse("graph \"g\"\nx = input : f32[1,4,6,6]\n" + pair("y", "x", a) + pair("z", "y", b) + "r = relu z\noutput r\n");
    EXPECT_EQ(plan::permit_pairs(g).taken, 2);
    EXPECT_EQ(g.value(g.inputs[0]).range, ir::symmetric(0.04F));
  }
}

TEST(PermitPairs, CodesThatOthersReadStay) {
  ir::Graph g =
      parse("graph \"g\"\nx = input : f32[1,4,6,6]\n" + pair("z", "x", "s8(0.02,0)") + "r = relu z\noutput r\noutput z_q\n");
  EXPECT_EQ(plan::permit_pairs(g).taken, 1);
  ASSERT_TRUE(ir::verify(g));
  EXPECT_EQ(g.producer(g.outputs[1]).op, ir::Op::quantize);
  EXPECT_EQ(g.producer(g.outputs[0]).inputs[0], g.inputs[0]);
}

}  // namespace
}  // namespace octavo
