// C1: A, B, C -> Concat -> Q -> DQ -> Conv. C13: differently scaled parts. C11: concat, split and slice with pairs on inputs,
// outputs, both or none.
#include <algorithm>
#include <cmath>

#include "cases/judge.h"
#include "reference/evaluate.h"
#include "support/feeds.h"

namespace octavo::cases {
namespace {

using ir::ValueId;

// C1: three convolutions, each stores int8 straight into its slice.
Net three_producers(Form form, float scale = 0.04F) {
  Net n(form, 1);
  const ValueId x = n.pair(n.input("x", {1, 8, 6, 6}), 0.03F);
  std::vector<ValueId> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(n.relu(n.conv(x, 16, {.kernel = 1 + 2 * (i % 2)})));
  n.output(n.conv(n.pair(n.concat(parts), scale), 8));
  return n;
}

TEST(C01ConcatQuantize, ProducersStoreIntoTheirSlices) {
  const Facts f = same_as_counterpart([](Form form) { return three_producers(form); });
  EXPECT_EQ(f.difference, "");
  EXPECT_EQ(f.layers, 4) << f.listing;
  EXPECT_EQ(f.copies, 0) << f.listing;
  EXPECT_EQ(f.loose, 0) << f.listing;
}

TEST(C01ConcatQuantize, ControlAPairThatMayNotMoveCostsARegion) {
  const Facts whole = judge(three_producers(Form::explicit_qdq));
  const Facts held = judge(three_producers(Form::explicit_qdq), {.disabled = {"move-view-concat"}});
  EXPECT_GT(held.layers, whole.layers) << held.listing;
  EXPECT_NE(held.hash, whole.hash);
  const Facts other = judge(three_producers(Form::explicit_qdq, 0.05F));
  EXPECT_NE(other.hash, whole.hash);
}

// C1 with network inputs: at most one quantizing pass over all of them, and no copy.
Net three_inputs(Form form) {
  Net n(form, 2);
  std::vector<ValueId> parts;
  for (const char* name : {"a", "b", "c"}) parts.push_back(n.input(name, {1, 8, 6, 6}));
  n.output(n.conv(n.pair(n.concat(parts), 0.04F), 8));
  return n;
}

TEST(C01ConcatQuantize, NetworkInputsAreQuantizedOnce) {
  const Facts f = same_as_counterpart([](Form form) { return three_inputs(form); });
  EXPECT_EQ(f.difference, "");
  EXPECT_EQ(f.layers, 1) << f.listing;
  EXPECT_EQ(f.copies, 0) << f.listing;
  EXPECT_LE(f.edges, 3 + 1) << "a quantizer an input, the output's layout\n" << f.listing;
}

// C1 where the parts have other float readers: they are stored twice, not read again.
Net also_float(Form form) {
  Net n(form, 3);
  const ValueId x = n.pair(n.input("x", {1, 8, 6, 6}), 0.03F);
  const ValueId a = n.relu(n.conv(x, 8)), b = n.relu(n.conv(x, 8, {.kernel = 1}));
  n.output(n.conv(n.pair(n.concat({a, b}), 0.04F), 8));
  n.output(n.op(ir::Op::add, {a, b}));
  return n;
}

TEST(C01ConcatQuantize, FloatReadersKeepTheirFloats) {
  const Facts f = same_as_counterpart([](Form form) { return also_float(form); });
  EXPECT_EQ(f.difference, "");
  EXPECT_EQ(f.copies, 0) << f.listing;
  EXPECT_LE(f.layers, 4) << "three convolutions and at most one quantizing pass\n" << f.listing;
}

Net swish_producers(Form form) {
  Net n(form, 7);
  const ValueId x = n.pair(n.input("x", {1, 8, 6, 6}), 0.03F);
  n.output(n.conv(n.pair(n.concat({n.silu(n.conv(x, 16)), n.silu(n.conv(x, 16, {.kernel = 1}))}), 0.04F), 8));
  return n;
}

TEST(C01ConcatQuantize, BothSidesOfTheConcatArePriced) {
  const Facts f = judge(swish_producers(Form::explicit_qdq), {.effort = 3});
  EXPECT_EQ(f.difference, "");
  EXPECT_EQ(f.copies, 0) << f.listing;
  const region::Decision* d = decision(f, "concat");
  ASSERT_NE(d, nullptr) << f.listing;
  EXPECT_GE(d->candidates.size(), 2U) << f.listing;
  EXPECT_FALSE(d->reasons.empty()) << f.listing;
  EXPECT_EQ(decision(judge(swish_producers(Form::explicit_qdq), {.disabled = {"concat"}, .effort = 3}), "concat"), nullptr);
}

// C11: where the pairs of equal scale sit around a concat does not matter.
enum class Sides { none, inputs, outputs, both };

Net around_concat(Form form, Sides sides) {
  Net n(form, 4);
  const float s = 0.05F;
  const ValueId x = n.pair(n.input("x", {1, 8, 6, 6}), 0.03F);
  std::vector<ValueId> parts;
  for (int i = 0; i < 2; ++i) {
    const ValueId v = n.relu(n.conv(x, 8));
    parts.push_back(sides == Sides::inputs || sides == Sides::both ? n.pair(v, s) : v);
  }
  ValueId y = n.concat(parts);
  if (sides == Sides::outputs || sides == Sides::both) y = n.pair(y, s);
  n.output(n.conv(sides == Sides::none ? n.pair(y, s) : y, 8));
  return n;
}

TEST(C11Moves, ConcatWithPairsOnAnySide) {
  const Facts first = judge(around_concat(Form::explicit_qdq, Sides::inputs));
  EXPECT_EQ(first.difference, "");
  EXPECT_EQ(first.layers, 3) << first.listing;
  EXPECT_EQ(first.copies, 0) << first.listing;
  for (const Sides sides : {Sides::none, Sides::outputs, Sides::both}) {
    const Facts f = same_as_counterpart([&](Form form) { return around_concat(form, sides); });
    EXPECT_EQ(f.difference, "");
    EXPECT_EQ(f.hash, first.hash) << f.listing;
  }
}

// The pair may sit before the split (outputs of the producer), behind each part, both, or only before the readers (none).
Net around_split(Form form, Sides sides, bool slice) {
  Net n(form, 5);
  const float s = 0.05F;
  const ValueId x = n.pair(n.input("x", {1, 8, 6, 6}), 0.03F);
  ValueId v = n.relu(n.conv(x, 16));
  if (sides == Sides::inputs || sides == Sides::both) v = n.pair(v, s);
  const bool behind = sides != Sides::inputs;
  const auto part = [&](std::int64_t from, std::int64_t to) {
    const ValueId p = n.channels(v, from, to);
    return behind ? n.pair(p, s) : p;
  };
  n.output(n.conv(part(0, 8), 8));
  if (!slice) n.output(n.conv(part(8, 16), 8));
  return n;
}

TEST(C11Moves, SplitWithPairsOnAnySide) {
  const Facts first = judge(around_split(Form::explicit_qdq, Sides::inputs, false));
  EXPECT_EQ(first.difference, "");
  EXPECT_EQ(first.layers, 3) << first.listing;
  EXPECT_EQ(first.copies, 0) << first.listing;
  for (const Sides sides : {Sides::none, Sides::outputs, Sides::both}) {
    const Facts f = same_as_counterpart([&](Form form) { return around_split(form, sides, false); });
    EXPECT_EQ(f.difference, "");
    EXPECT_EQ(f.hash, first.hash) << f.listing;
  }
}

TEST(C11Moves, SliceWithPairsOnAnySide) {
  const Facts first = judge(around_split(Form::explicit_qdq, Sides::outputs, true));
  EXPECT_EQ(first.difference, "");
  EXPECT_EQ(first.layers, 2) << first.listing;
  EXPECT_EQ(first.copies, 0) << first.listing;
  for (const Sides sides : {Sides::none, Sides::inputs, Sides::both}) {
    const Facts f = judge(around_split(Form::explicit_qdq, sides, true));
    EXPECT_EQ(f.difference, "");
    EXPECT_EQ(f.layers, 2) << f.listing;
    EXPECT_EQ(f.copies, 0) << f.listing;
    EXPECT_EQ(f.hash, first.hash) << f.listing;
  }
}

TEST(C11Moves, ControlWithoutTheLawsThePlansDiffer) {
  const Options held{.disabled = {"move-view-concat", "move-view-slice"}};
  EXPECT_NE(judge(around_concat(Form::explicit_qdq, Sides::inputs), held).hash,
            judge(around_concat(Form::explicit_qdq, Sides::outputs), held).hash);
  EXPECT_NE(judge(around_split(Form::explicit_qdq, Sides::inputs, false), held).hash,
            judge(around_split(Form::explicit_qdq, Sides::outputs, false), held).hash);
}

// C13: each part has a scale of its own, and the conv reads them as they are.
Net scaled_parts(Form form, float second) {
  Net n(form, 6);
  const ValueId x = n.pair(n.input("x", {1, 8, 6, 6}), 0.03F);
  const ValueId a = n.pair(n.relu(n.conv(x, 16)), 0.02F), b = n.pair(n.relu(n.conv(x, 16, {.kernel = 1})), second);
  n.output(n.conv(n.concat({a, b}), 8));
  return n;
}

TEST(C13ScaledConcat, DemandedScalesAreKept) {
  const Facts f = judge(scaled_parts(Form::explicit_qdq, 0.07F));
  EXPECT_EQ(f.copies, 0) << f.listing;
  EXPECT_EQ(f.loose, 0) << f.listing;
  EXPECT_NE(f.listing.find("\"concat_"), std::string::npos) << "the reason names the tensor\n" << f.listing;
  const Facts equal = judge(scaled_parts(Form::explicit_qdq, 0.02F));
  EXPECT_EQ(equal.difference, "");
  EXPECT_EQ(equal.floats, 0) << equal.listing;
  EXPECT_NE(equal.hash, f.hash);
}

TEST(C13ScaledConcat, SegmentsKeepTheConvolutionInIntegers) {
  const Facts f = judge(scaled_parts(Form::explicit_qdq, 0.07F), {.effort = 3, .forced = {"segments"}});
  EXPECT_EQ(f.floats + f.copies + f.loose, 0) << f.listing;
  ASSERT_NE(decision(f, "segments"), nullptr) << f.listing;
  const Net net = scaled_parts(Form::explicit_qdq, 0.07F);
  const auto want = reference::evaluate(net.graph, testing::seeded_feeds(net.graph, 7));
  ASSERT_TRUE(want);
  float largest = 0, worst = 0;
  const auto a = want->at(0).data<float>(), b = f.outputs.at(0).data<float>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i]));
    worst = std::max(worst, std::abs(a[i] - b[i]));
  }
  EXPECT_LE(worst, 1e-5F * largest) << "the sum over the parts is taken in fp32, in channel order";
  const Facts held = judge(scaled_parts(Form::explicit_qdq, 0.07F), {.disabled = {"segments"}, .effort = 3});
  EXPECT_EQ(held.floats, 1) << held.listing;
}

}  // namespace
}  // namespace octavo::cases
