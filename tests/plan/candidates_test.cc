// The graph rewrites behind planner candidates, each run both ways in the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/causes/plan_candidates.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "plan/candidates/above_moves.h"
#include "plan/candidates/segments.h"
#include "plan/candidates/split_conv.h"
#include "plan/candidates/split_views.h"
#include "reference/evaluate.h"
#include "report/sentences.h"
#include "support/feeds.h"

namespace octavo {
namespace {

ir::Graph parsed(const std::string& text) {
  auto g = ir::parse(text);
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  return std::move(*g);
}

ir::NodeId find(const ir::Graph& g, ir::Op op) {
  for (const ir::NodeId id : g.order()) {
    if (g.node(id).op == op) return id;
  }
  return ir::kNone;
}

std::vector<ir::Tensor> run(const ir::Graph& g, const std::vector<ir::Tensor>& feeds) {
  auto out = reference::evaluate(g, feeds);
  EXPECT_TRUE(out) << (out ? "" : out.error().message);
  return std::move(*out);
}

constexpr const char* kConcat = R"(
graph "g"
x = input : f32[1,3,4,4]
y = input : f32[1,5,4,4]
z = input : f32[1,2,4,4]
a = view x q=s8(0.03,0)
b = view y q=s8(0.07,0)
c = view z q=s8(0.07,0)
cat = concat a b c {axis=1}
w = constant s8[4,10,3,3] q=s8[axis=0](0.01,0.02,0.03,0.01;0,0,0,0) seed:1
bias = constant f32[4] seed:2
r = conv cat w bias {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"conv"}
output r
)";

TEST(Segments, SumOfIntegerConvolutionsWithinFloatsFreedom) {
  const ir::Graph before = parsed(kConcat);
  ir::Graph after = before;
  const ir::NodeId conv = find(after, ir::Op::conv);
  ASSERT_EQ(plan::why_no_segments(after, ir::find_grids(after), conv), std::nullopt);
  plan::make_segments(after, ir::find_grids(after), conv);
  ASSERT_TRUE(ir::verify(after)) << ir::verify(after).error().message;
  int convs = 0;
  const ir::Grids grids = ir::find_grids(after);
  for (const ir::NodeId id : after.order()) {
    if (after.node(id).op != ir::Op::conv) continue;
    ++convs;
    EXPECT_TRUE(ir::classify_anchor(after, grids, id).integer) << id;
  }
  EXPECT_EQ(convs, 2) << "neighbouring parts on one grid are one segment";
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const auto feeds = testing::seeded_feeds(before, seed);
    const auto a = run(before, feeds), b = run(after, feeds);
    const auto x = a[0].data<float>(), y = b[0].data<float>();
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(x[i], y[i], 1e-4 * (1 + std::abs(x[i]))) << "seed " << seed << ", element " << i;
  }
}

TEST(Segments, RefusesWithTheReason) {
  std::string text = kConcat;
  text.replace(text.find("c = view z q=s8(0.07,0)\n"), 24, "c = relu z\n");
  const ir::Graph g = parsed(text);
  EXPECT_EQ(plan::why_no_segments(g, ir::find_grids(g), find(g, ir::Op::conv)), because<cause::part_off_grid>("c"));
}

// Both halves of a split, at scales of their own; one again behind its view at the scale of a concatenation (a YOLO block).
constexpr const char* kSplit = R"(
graph "g"
x = input : f32[1,6,3,3]
v = sigmoid x
q1 = view v q=s8(0.005,0) from {"q1"}
q2 = view v q=s8(0.007,3) from {"q2"}
q3 = view q2 q=s8(0.005,0) from {"q3"}
a = slice q1 {ends=[1,3,3,3], starts=[0,0,0,0], steps=[1,1,1,1]}
b = slice q2 {ends=[1,6,3,3], starts=[0,3,0,0], steps=[1,1,1,1]}
c = slice q3 {ends=[1,6,3,3], starts=[0,3,0,0], steps=[1,1,1,1]}
cat = concat a c {axis=1}
output cat
output b
)";

TEST(SplitViews, SameBitsWithOneStoreLess) {
  const ir::Graph before = parsed(kSplit);
  ir::Graph after = before;
  const ir::ValueId v = after.node(find(after, ir::Op::sigmoid)).outputs[0];
  ASSERT_EQ(plan::why_no_split_views(after, v), std::nullopt);
  plan::make_split_views(after, v);
  ASSERT_TRUE(ir::verify(after)) << ir::verify(after).error().message;
  int views = 0;
  for (const ir::NodeId id : after.order()) views += after.node(id).op == ir::Op::view;
  EXPECT_EQ(views, 2);
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    const auto feeds = testing::seeded_feeds(before, seed);
    EXPECT_EQ(testing::first_difference(run(before, feeds), run(after, feeds)), "") << seed;
  }
}

TEST(SplitViews, OverlappingChannelsAreRefused) {
  std::string text = kSplit;
  for (auto at = text.find("starts=[0,3,0,0]"); at != std::string::npos; at = text.find("starts=[0,3,0,0]"))
    text.replace(at, 16, "starts=[0,2,0,0]");
  for (auto at = text.find("ends=[1,6,3,3]"); at != std::string::npos; at = text.find("ends=[1,6,3,3]"))
    text.replace(at, 14, "ends=[1,5,3,3]");
  ir::Graph g = parsed(text);
  EXPECT_EQ(plan::why_no_split_views(g, g.node(find(g, ir::Op::sigmoid)).outputs[0]), because<cause::parts_at_two_scales>(2, 2));
}

// A YOLO block's first convolution: an activation, constants a channel and one for all, and slices at scales of their own.
constexpr const char* kSplitConv = R"(
graph "g"
x = input : f32[1,4,5,5]
xq = view x q=u8(0.01,128) from {"xq"}
w = constant s8[7,4,3,3] q=s8[axis=0](0.01,0.02,0.03,0.01,0.02,0.05,0.01;0,0,0,0,0,0,0) seed:1
bias = constant f32[7] seed:2
r = conv xq w bias {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"conv"}
k = constant f32[1,7,1,1] seed:3
m = mul r k from {"scaled"}
s = sigmoid m from {"sigmoid"}
y = mul m s from {"mul"}
pa = view y q=s8[axis=1](0.01,0.02,0.03,0.01,0.02,0.05,0.01;0,0,0,1,2,3,4) from {"channels"}
q1 = view pa q=s8(0.005,0) from {"q1"}
q2 = view pa q=s8(0.007,3) from {"q2"}
a = slice q1 {ends=[1,3,5,5], starts=[0,0,0,0], steps=[1,1,1,1]}
b = slice q2 {ends=[1,7,5,5], starts=[0,3,0,0], steps=[1,1,1,1]}
c = slice q1 {ends=[1,7,5,5], starts=[0,3,0,0], steps=[1,1,1,1]}
cat = concat a c {axis=1}
output cat
output b
)";

std::string without(std::string text, const std::string& what, const std::string& instead) {
  const auto at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), instead);
}

TEST(SplitConv, SameBitsFromAConvolutionForEachPart) {
  const ir::Graph before = parsed(kSplitConv);
  ir::Graph after = before;
  const ir::NodeId conv = find(after, ir::Op::conv);
  ASSERT_EQ(plan::why_no_split_conv(after, ir::find_grids(after), conv), std::nullopt);
  plan::make_split_conv(after, ir::find_grids(after), conv);
  ASSERT_TRUE(ir::verify(after)) << ir::verify(after).error().message;
  std::vector<std::int64_t> channels;
  for (const ir::NodeId id : after.order()) {
    EXPECT_NE(after.node(id).op, ir::Op::slice);
    if (after.node(id).op != ir::Op::conv) continue;
    channels.push_back(after.type(after.node(id).outputs[0]).shape[1]);
    EXPECT_TRUE(ir::classify_anchor(after, ir::find_grids(after), id).integer);
    EXPECT_EQ(after.node(id).origin, std::set<std::string>{"conv"});
  }
  std::sort(channels.begin(), channels.end());
  EXPECT_EQ(channels, (std::vector<std::int64_t>{3, 4}));
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    const auto feeds = testing::seeded_feeds(before, seed);
    EXPECT_EQ(testing::first_difference(run(before, feeds), run(after, feeds)), "") << seed;
  }
}

TEST(SplitConv, RefusesWithTheReason) {
  const auto why = [](const std::string& text) {
    const ir::Graph g = parsed(text);
    const auto found = plan::why_no_split_conv(g, ir::find_grids(g), find(g, ir::Op::conv));
    return found ? report::sentence(*found) : "";
  };
  const std::string text = kSplitConv;
  EXPECT_EQ(why(text + "output y\n"), "the whole tensor is a network output");
  EXPECT_EQ(why(without(text, "output b", "all = softmax q1 {axis=1}\noutput all\noutput b")), "softmax reads all of its channels");
  EXPECT_EQ(why(without(text, "starts=[0,3,0,0]", "starts=[0,2,0,0]")), "two slices overlap in channels 2 to 2");
  EXPECT_EQ(why(without(text, "q=u8(0.01,128)", "q=u8[axis=1](0.01,0.02,0.03,0.04;0,0,0,0)")),
            "the convolution does not compute in integers");
  EXPECT_EQ(why(without(without(text, "k = constant f32[1,7,1,1] seed:3", "k = input : f32[1,7,5,5]"), "mul r k", "mul r k")),
            "\"m\" is combined with \"k\" before it is sliced");
  EXPECT_EQ(why(without(without(text, "ends=[1,3,5,5]", "ends=[1,3,5,4]"), "cat = concat a c {axis=1}\noutput cat", "output a")),
            "one of its readers slices another axis than the channels");
}

// Queries, keys and values of one linear layer, as attention reads them: two heads, the values rounded before they are moved.
constexpr const char* kHeads = R"(
graph "g"
x = input : f32[6,8]
a = view x q=u8(0.03,128)
w = constant s8[8,12] q=s8[axis=1](0.01,0.02,0.03,0.01,0.015,0.01,0.02,0.03,0.01,0.02,0.012,0.01;0,0,0,0,0,0,0,0,0,0,0,0) seed:1
y = gemm a w from {"layer"}
r = view y q=u8(0.05,128) from {"pair"}
bias = constant f32[12] seed:2
t = add bias r from {"bias"}
s = reshape t {shape=[2,3,3,4]} from {"reshape"}
p = transpose s {perm=[2,0,1,3]} from {"transpose"}
q0 = slice p {ends=[1,2,3,4], starts=[0,0,0,0], steps=[1,1,1,1]}
q1 = reshape q0 {shape=[2,3,2,2]}
q2 = transpose q1 {perm=[0,2,1,3]}
root = constant f32[1] (0.7)
q3 = mul root q2 from {"scale"}
q = view q3 q=s8(0.02,0) from {"of queries"}
k0 = slice p {ends=[2,2,3,4], starts=[1,0,0,0], steps=[1,1,1,1]}
k1 = reshape k0 {shape=[2,3,2,2]}
k2 = transpose k1 {perm=[0,2,3,1]}
k3 = mul root k2
k = view k3 q=s8(0.03,2) from {"of keys"}
v0 = view t q=s8(0.04,-3) from {"of values"}
v1 = reshape v0 {shape=[2,3,3,4]}
v2 = transpose v1 {perm=[2,0,1,3]}
v3 = slice v2 {ends=[3,2,3,4], starts=[2,0,0,0], steps=[1,1,1,1]}
v4 = reshape v3 {shape=[2,3,2,2]}
v = transpose v4 {perm=[0,2,1,3]}
output q
output k
output v
)";
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}
std::optional<Reason> why_no_above_moves(const ir::Graph& g) {
  return plan::why_no_above_moves(g, ir::find_grids(g), find(g, ir::Op::gemm));
}

TEST(AboveMoves, SameBitsAndEachPartIsALayer) {
  const ir::Graph before = parsed(kHeads);
  ir::Graph after = before;
  ASSERT_EQ(why_no_above_moves(after), std::nullopt);
  const auto stored = plan::make_above_moves(after, ir::find_grids(after), find(after, ir::Op::gemm));
  ASSERT_TRUE(ir::verify(after)) << ir::verify(after).error().message;
  EXPECT_EQ(stored.size(), 3);
  int layers = 0, slices = 0, scaled = 0;
  const ir::Grids grids = ir::find_grids(after);
  std::set<std::string> origins;
  for (const ir::NodeId id : after.order()) {
    const ir::Node& n = after.node(id);
    origins.insert(n.origin.begin(), n.origin.end());
    slices += n.op == ir::Op::slice;
    if (n.op == ir::Op::gemm) {
      ++layers;
      EXPECT_TRUE(ir::classify_anchor(after, grids, id).integer);
      EXPECT_EQ(after.type(n.outputs[0]).shape, (ir::Shape{6, 4}));
    }
    if (n.op == ir::Op::mul) {
      ++scaled;
      EXPECT_EQ(after.type(n.outputs[0]).shape, (ir::Shape{6, 4})) << "in front of the moves";
    }
  }
  EXPECT_EQ(layers, 3);
  EXPECT_EQ(slices, 0);
  EXPECT_EQ(scaled, 2);
  for (const char* name : {"layer", "pair", "bias", "reshape", "transpose", "scale", "of queries", "of keys", "of values"})
    EXPECT_TRUE(origins.contains(name)) << name;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    const auto feeds = testing::seeded_feeds(before, seed);
    EXPECT_EQ(testing::first_difference(run(before, feeds), run(after, feeds)), "") << seed;
  }
}

TEST(AboveMoves, OneReaderOfTheWholeLayer) {
  const ir::Graph before = parsed(R"(
graph "g"
x = input : f32[6,8]
a = view x q=u8(0.03,128)
w = constant s8[8,4] q=s8[axis=1](0.01,0.02,0.03,0.01;0,0,0,0) seed:1
y = gemm a w
s = reshape y {shape=[2,3,2,2]}
p = transpose s {perm=[0,2,3,1]}
root = constant f32[] (0.7)
m = mul p root
k = view m q=s8(0.02,0)
output k
)");
  ir::Graph after = before;
  ASSERT_EQ(why_no_above_moves(after), std::nullopt);
  EXPECT_EQ(plan::make_above_moves(after, ir::find_grids(after), find(after, ir::Op::gemm)).size(), 1);
  ASSERT_TRUE(ir::verify(after)) << ir::verify(after).error().message;
  EXPECT_EQ(after.type(after.node(find(after, ir::Op::mul)).outputs[0]).shape, (ir::Shape{6, 4}));
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const auto feeds = testing::seeded_feeds(before, seed);
    EXPECT_EQ(testing::first_difference(run(before, feeds), run(after, feeds)), "") << seed;
  }
}

TEST(AboveMoves, RefusesWithTheReason) {
  const std::string text = kHeads;
  EXPECT_EQ(why_no_above_moves(parsed(replaced(text, "a = view x q=u8(0.03,128)\n", "a = relu x\n"))),
            because<cause::anchor_not_integer>());
  EXPECT_EQ(why_no_above_moves(parsed(replaced(text, "ends=[2,2,3,4], starts=[1,0,0,0]", "ends=[1,2,3,4], starts=[0,0,0,0]"))),
            std::nullopt)
      << "two readers of one part";
  EXPECT_EQ(why_no_above_moves(parsed(replaced(text, "output v\n", "output v\noutput t\n"))), because<cause::parts_overlap>(0, 3))
      << "the whole is read as well";
  EXPECT_EQ(
      why_no_above_moves(parsed(replaced(replaced(text, "ends=[1,2,3,4], starts=[0,0,0,0]", "ends=[1,1,3,4], starts=[0,0,0,0]"),
                                         "q1 = reshape q0 {shape=[2,3,2,2]}", "q1 = reshape q0 {shape=[1,3,2,2]}"))),
      because<cause::not_whole_rows_of_columns>("q"));
  EXPECT_EQ(why_no_above_moves(parsed(R"(
graph "g"
x = input : f32[6,8]
a = view x q=u8(0.03,128)
w = constant s8[8,4] q=s8[axis=1](0.01,0.02,0.03,0.01;0,0,0,0) seed:1
y = gemm a w
r = relu y
s = reshape r {shape=[2,3,2,2]}
output s
)")),
            because<cause::nothing_behind_moves>());
}

}  // namespace
}  // namespace octavo
