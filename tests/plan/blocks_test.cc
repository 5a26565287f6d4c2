// Which regions the planner puts together as stages of one: each case is a network and the grouping that --force=block (and stage-store)
// makes of it, a line a region: its stages by the ONNX nodes' names, what leaves from an inner stage in brackets.
#include "plan/candidates/blocks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cpu/provider.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "reference/evaluate.h"
#include "region/stage_graph.h"
#include "support/feeds.h"
#include "support/run_plan.h"

namespace octavo {
namespace {

/// "x = conv IN ..." with a view behind it; `from` is the node's name.
std::string conv(const std::string& out, const std::string& in, int from, int to, int kernel, int stride, int group = 1) {
  const int pad = kernel / 2;
  const auto n = [](int v) { return std::to_string(v); };
  const std::string p = n(pad), w = "w_" + out;
  return w + " = constant s8[" + n(to) + "," + n(from / group) + "," + n(kernel) + "," + n(kernel) +
         "] q=s8(0.02,0) seed:" + n(static_cast<int>(out.size()) + kernel + to) + "\n" + out + " = conv " + in + " " + w +
         " {dilations=[1,1], group=" + n(group) + ", pads=[" + p + "," + p + "," + p + "," + p + "], strides=[" + n(stride) + "," +
         n(stride) + "]} from {\"" + out + "\"}\n";
}
std::string view(const std::string& out, const std::string& in, const std::string& zero = "0") {
  return out + " = view " + in + " q=u8(0.05," + zero + ") from {\"" + out + "\"}\n";
}
const std::string kInput = "graph \"g\"\nx = input : f32[1,16,14,14]\nq = view x q=u8(0.03,100) from {\"q\"}\n";

/// a (read twice), then a bottleneck that adds `a`, or a convolution of it, and a last convolution.
std::string bottleneck(bool projection, int stride) {
  std::string t = kInput + conv("a0", "q", 16, 32, 1, 1) + view("a", "a0");
  t += conv("b0", "a", 32, 8, 1, 1) + view("b", "b0") + conv("c0", "b", 8, 8, 3, stride) + view("c", "c0") +
       conv("d0", "c", 8, 32, 1, 1);
  if (projection) t += conv("p", "a", 32, 32, 1, stride);
  t += std::string("s = add d0 ") + (projection ? "p" : "a") + " from {\"s\"}\n" + view("v", "s", "90");
  return t + conv("e0", "v", 32, 8, 3, 1) + view("e", "e0") + "output e\noutput v\n";
}
/// Two inverted bottlenecks without a sum: one chain.
std::string inverted() {
  std::string t = kInput + conv("a0", "q", 16, 64, 1, 1) + view("a", "a0") + conv("b0", "a", 64, 64, 3, 2, 64) + view("b", "b0") +
                  conv("c0", "b", 64, 8, 1, 1) + view("c", "c0", "77");
  t += conv("d0", "c", 8, 48, 1, 1) + view("d", "d0") + conv("e0", "d", 48, 48, 3, 1, 48) + view("e", "e0") +
       conv("f0", "e", 48, 16, 1, 1) + view("f", "f0", "128");
  return t + "output f\n";
}

std::string grouping(const region::Plan& plan) {
  std::string out;
  for (const region::Region& r : plan.regions) {
    if (r.stages.size() == 1) continue;
    std::string line;
    for (std::size_t s = 0; s < r.stages.size(); ++s) {
      line += line.empty() ? "" : " -> ";
      line += r.stages[s].anchor.none() ? "pass" : std::string(ir::name_of(r.stages[s].anchor.op));
      const auto& w = r.stages[s].anchor.weights;
      if (w) line += std::to_string(w->dims[2]);
      for (const auto& e : region::edges_of(r)) {
        if (e.reader == s && e.from.stage + 1 != s) line += "(reads " + std::to_string(e.from.stage) + ")";
      }
      bool leaves = false;
      for (std::size_t j = 0; j < r.stages[s].stores.size(); ++j) leaves = leaves || region::leaves(r, {s, j});
      if (leaves && s + 1 < r.stages.size()) line += "[leaves]";
    }
    out += line + "\n";
  }
  return out;
}

void expect_grouping(const std::string& text, const std::set<std::string, std::less<>>& forced, const std::string& wanted) {
  auto g = ir::parse(text);
  ASSERT_TRUE(g) << g.error().message;
  const auto feeds = testing::seeded_feeds(*g, 7);
  const auto want = reference::evaluate(*g, feeds);
  ASSERT_TRUE(want);
  for (const int threads : {1, 3}) {
    plan::PlanOptions o;
    o.forced = forced;
    o.threads = threads;
    const auto p = plan::make_plan(*g, cpu::providers(), o);
    ASSERT_TRUE(p) << p.error().message;
    EXPECT_EQ(grouping(p->plan), wanted);
    const auto ok = region::verify(p->plan);
    ASSERT_TRUE(ok) << ok.error().message;
    for (const region::Region& r : p->plan.regions) {
      EXPECT_EQ(region::reads_of(r).size(), r.graph_inputs.size()) << r.name;
      EXPECT_EQ(region::results_of(r).size(), r.graph_outputs.size()) << r.name;
    }
    const auto again = region::from_json(region::to_json(p->plan));
    ASSERT_TRUE(again) << again.error().message;
    const auto got = testing::run_plan(p->plan, cpu::providers(), feeds, threads > 1);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(testing::first_difference(*want, *got), "") << threads << " threads";
  }
}

TEST(Blocks, ABottleneckIsOneRegion) {
  expect_grouping(bottleneck(false, 1), {"block"}, "pass -> conv1\nconv1 -> conv3 -> conv1\nconv3 -> pass\n");
}

TEST(Blocks, AProjectionIsAStageOfItsBlock) {
  expect_grouping(bottleneck(true, 1), {"block"}, "pass -> conv1\nconv1 -> conv3 -> conv1 -> conv1\nconv3 -> pass\n");
  expect_grouping(bottleneck(true, 2), {"block"}, "pass -> conv1\nconv1 -> conv3 -> conv1 -> conv1\nconv3 -> pass\n");
}

TEST(Blocks, AChainIsCutWhereLeastLiesBetween) {
  expect_grouping(inverted(), {"block"}, "pass -> conv1 -> conv3 -> conv1\nconv1 -> conv3 -> conv1 -> pass\n");
}

TEST(Blocks, AValueThatIsReadAgainIsStoredByAnInnerStage) {
  expect_grouping(bottleneck(false, 1), {"stage-store"}, "conv1[leaves] -> conv1\n");
}

TEST(Blocks, NothingIsJoinedByDefault) {
  expect_grouping(bottleneck(true, 1), {}, "");
}

TEST(Blocks, AskedForWhereMoreLiesBetweenThanCachesHold) {
  plan::Block b;
  b.between_bytes = 512 << 10, b.weight_bytes = 1 << 10;
  EXPECT_TRUE(plan::worth_pricing(b, 1 << 20));
  EXPECT_FALSE(plan::worth_pricing(b, 2 << 20));
  b.weight_bytes = 600 << 10;
  EXPECT_FALSE(plan::worth_pricing(b, 1 << 20));
}

}  // namespace
}  // namespace octavo
