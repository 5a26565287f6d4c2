// Chains of stages and regions side by side, forced by costs that count regions: the same bits at row tile edges, strides, paddings and
// any number of threads.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/causes/plan_search.h"
#include "cpu/provider.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "reference/evaluate.h"
#include "region/stage_graph.h"
#include "support/costs.h"
#include "support/feeds.h"
#include "support/run_plan.h"

namespace octavo {
namespace {

using testing::CountRegions;

/// An inverted residual: 1x1 expand, depthwise, 1x1 project, with a residual branch when the stride is 1; two heads read its result.
std::string block(int size, int kernel, int stride, int expanded) {
  const int out = (size + 2 * (kernel / 2) - kernel) / stride + 1, pad = kernel / 2;
  const auto conv = [](int group, int p, int s) {
    return "{dilations=[1,1], group=" + std::to_string(group) + ", pads=[" + std::to_string(p) + "," + std::to_string(p) + "," +
           std::to_string(p) + "," + std::to_string(p) + "], strides=[" + std::to_string(s) + "," + std::to_string(s) + "]}";
  };
  const std::string e = std::to_string(expanded), n = std::to_string(size), k = std::to_string(kernel);
  std::string t = "graph \"g\"\nx = input : f32[2,8," + n + "," + n + "]\nq = view x q=u8(0.03,100) from {\"q\"}\n";
  t += "w1 = constant s8[" + e + ",8,1,1] q=s8(0.02,0) seed:1\nw2 = constant s8[" + e + ",1," + k + "," + k +
       "] q=s8(0.02,0) seed:2\n";
  t += "w3 = constant s8[8," + e +
       ",1,1] q=s8(0.02,0) seed:3\nw4 = constant s8[6,8,1,1] q=s8(0.02,0) seed:4\nw5 = constant s8[5,8,1,1] q=s8(0.02,0) seed:5\n";
  t += "a = conv q w1 " + conv(1, 0, 1) +
       " from {\"expand\"}\nar = relu a from {\"relu1\"}\nav = view ar q=u8(0.02,0) from {\"av\"}\n";
  t += "b = conv av w2 " + conv(expanded, pad, stride) +
       " from {\"depthwise\"}\nbr = relu b from {\"relu2\"}\nbv = view br q=u8(0.03,0) from {\"bv\"}\n";
  t += "c = conv bv w3 " + conv(1, 0, 1) + " from {\"project\"}\n";
  std::string last = "c";
  if (stride == 1 && out == size) {
    t += "s = add c q from {\"add\"}\n";
    last = "s";
  }
  t += "cv = view " + last + " q=u8(0.05,128) from {\"cv\"}\n";
  t += "h1 = conv cv w4 " + conv(1, 0, 1) + " from {\"head1\"}\nh2 = conv cv w5 " + conv(1, 0, 1) + " from {\"head2\"}\n";
  return t + "v1 = view h1 q=u8(0.1,128) from {\"v1\"}\nv2 = view h2 q=u8(0.2,128) from {\"v2\"}\noutput v1\noutput v2\n";
}

TEST(Stages, ChainsGiveTheSameBits) {
  std::size_t longest = 0;
  int beside = 0, chains = 0;
  for (const int size : {1, 2, 7, 16, 33}) {
    for (const int kernel : {1, 3, 5}) {
      for (const int stride : {1, 2}) {
        for (const int expanded : {16, 200}) {
          auto g = ir::parse(block(size, kernel, stride, expanded));
          ASSERT_TRUE(g) << g.error().message;
          const std::string where = "size " + std::to_string(size) + " kernel " + std::to_string(kernel) + " stride " +
                                    std::to_string(stride) + " expanded " + std::to_string(expanded);
          const auto feeds = testing::seeded_feeds(*g, static_cast<std::uint64_t>(size));
          const auto want = reference::evaluate(*g, feeds);
          ASSERT_TRUE(want) << where;
          for (const int threads : {1, 2, 3, 7}) {
            CountRegions costs;
            plan::PlanOptions o;
            o.costs = &costs;
            o.effort = 3;
            o.threads = threads;
            const auto p = plan::make_plan(*g, cpu::providers(), o);
            ASSERT_TRUE(p) << where << "\n" << p.error().message;
            ASSERT_TRUE(region::verify(p->plan)) << where << "\n" << region::verify(p->plan).error().message;
            for (const region::Region& r : p->plan.regions) {
              if (r.independent) ++beside;
              if (!r.independent && r.stages.size() > 1) ++chains;
              if (!r.independent) longest = std::max(longest, r.stages.size());
            }
            const auto got = testing::run_plan(p->plan, cpu::providers(), feeds, threads % 2 == 0);
            ASSERT_TRUE(got) << where << "\n" << got.error().message;
            ASSERT_EQ(testing::first_difference(*want, *got), "") << where << ", " << threads << " threads";
          }
        }
      }
    }
  }
  std::printf("longest chain %zu stages, %d chains, %d regions side by side\n", longest, chains, beside);
  EXPECT_GE(longest, 3U);
  EXPECT_GT(beside, 0);
}

/// A residual block whose residual branch is a convolution, in float up to the sum; a pooling or a depthwise convolution reads the block.
std::string downsample(int size, int stride, int channels, bool pooled) {
  const std::string n = std::to_string(size), c = std::to_string(channels);
  const auto conv = [](int group, int p, int s) {
    return "{dilations=[1,1], group=" + std::to_string(group) + ", pads=[" + std::to_string(p) + "," + std::to_string(p) + "," +
           std::to_string(p) + "," + std::to_string(p) + "], strides=[" + std::to_string(s) + "," + std::to_string(s) + "]}";
  };
  std::string t = "graph \"g\"\nx = input : f32[2,8," + n + "," + n + "]\nq = view x q=u8(0.03,100) from {\"q\"}\n";
  t += "w1 = constant s8[" + c + ",8,1,1] q=s8(0.02,0) seed:1\nw2 = constant s8[16,8,3,3] q=s8(0.02,0) seed:2\n";
  t += "w3 = constant s8[" + c + ",16,1,1] q=s8(0.02,0) seed:3\nw4 = constant s8[" + c + ",1,3,3] q=s8(0.02,0) seed:4\n";
  t += "a = conv q w2 " + conv(1, 1, stride) + " from {\"inner\"}\nar = relu a from {\"relu1\"}\n";
  t += "av = view ar q=u8(0.02,0) from {\"av\"}\nb = conv av w3 " + conv(1, 0, 1) + " from {\"expand\"}\n";
  t += "h = conv q w1 " + conv(1, 0, stride) + " from {\"residual branch\"}\ns = add b h from {\"add\"}\n";
  t += "r = relu s from {\"relu2\"}\nv = view r q=u8(0.05,0) from {\"v\"}\n";
  if (pooled) return t + "p = max_pool v {kernel=[3,3], pads=[1,1,1,1], strides=[2,2]} from {\"pool\"}\noutput p\n";
  return t + "d = conv v w4 " + conv(channels, 1, 1) +
         " from {\"depthwise\"}\ndv = view d q=u8(0.1,128) from {\"dv\"}\noutput dv\n";
}

/// Convolutions that read the stage before in their epilogue.
int by_epilogue(const region::Plan& plan) {
  int found = 0;
  for (const region::Region& r : plan.regions) {
    for (std::size_t k = 1; k < r.stages.size(); ++k) found += !r.stages[k].anchor.none() && region::read_by_epilogue(r, k) ? 1 : 0;
  }
  return found;
}

TEST(Stages, AShortcutsConvolutionIsReadInTheEpilogue) {
  std::size_t longest = 0;
  for (const int size : {2, 13, 40}) {
    for (const int stride : {1, 2}) {
      for (const bool pooled : {false, true}) {
        auto g = ir::parse(downsample(size, stride, 200, pooled));
        ASSERT_TRUE(g) << g.error().message;
        const std::string where = "size " + std::to_string(size) + " stride " + std::to_string(stride) + (pooled ? " pooled" : "");
        const auto feeds = testing::seeded_feeds(*g, static_cast<std::uint64_t>(size));
        const auto want = reference::evaluate(*g, feeds);
        ASSERT_TRUE(want) << where;
        for (const int threads : {1, 2, 3}) {
          std::int64_t arena = 0;  // of the forced plan
          for (const char* how : {"searched", "forced", "disabled"}) {
            CountRegions costs;
            plan::PlanOptions o;
            o.threads = threads;
            if (*how == 's') o.costs = &costs, o.effort = 3;
            if (*how == 'f') o.forced = {"stages", "stage-operand"};
            if (*how == 'd') o.disabled = {"stage-operand"};
            const auto p = plan::make_plan(*g, cpu::providers(), o);
            ASSERT_TRUE(p) << where << "\n" << p.error().message;
            ASSERT_TRUE(region::verify(p->plan)) << where << "\n" << region::verify(p->plan).error().message;
            EXPECT_EQ(by_epilogue(p->plan), *how == 'd' || size / stride < 2 ? 0 : 1) << where << " " << how;
            if (*how == 'f') arena = p->plan.devices[0].arena_bytes;
            if (*how == 'd' && size / stride > 1) {
              EXPECT_LT(arena, p->plan.devices[0].arena_bytes) << where << ": it has no place in memory";
            }
            for (const region::Region& r : p->plan.regions) longest = std::max(longest, r.independent ? 0 : r.stages.size());
            const auto got = testing::run_plan(p->plan, cpu::providers(), feeds, threads % 2 == 0);
            ASSERT_TRUE(got) << where << "\n" << got.error().message;
            ASSERT_EQ(testing::first_difference(*want, *got), "") << where << ", " << threads << " threads, " << how;
            const auto again = plan::make_plan(*g, cpu::providers(), o);
            ASSERT_TRUE(again);
            EXPECT_EQ(region::plan_hash(again->plan), region::plan_hash(p->plan)) << where << " " << how;
          }
        }
      }
    }
  }
  EXPECT_GE(longest, 3U) << "a chain goes on behind the sum";
}

TEST(Stages, LargeResultsAreReadInTheEpilogueByDefault) {
  for (const auto& [size, threads] :
       {std::pair{31, 1}, {32, 1}, {32, 2}, {36, 3}, {37, 3}}) {  // 2 images x 200 channels x 4 bytes a pixel
    auto g = ir::parse(downsample(size, 1, 200, true));
    ASSERT_TRUE(g) << g.error().message;
    const auto planned = [&](const plan::PlanOptions& o) {
      const auto p = plan::make_plan(*g, cpu::providers(), o);
      EXPECT_TRUE(p) << p.error().message;
      return by_epilogue(p->plan);
    };
    plan::PlanOptions o;
    o.threads = threads;
    EXPECT_EQ(planned(o), size == 32 || size == 37 ? 1 : 0) << size;
    o.forced = {"stage-operand"};
    EXPECT_EQ(planned(o), 1) << size;
    o.forced.clear();
    o.disabled = {"stage-operand"};
    EXPECT_EQ(planned(o), 0) << size;
    std::set<int> seen;  // from effort 2 on times decide, either way
    for (std::uint64_t seed = 1; seed <= 200 && seen.size() < 2; ++seed) {
      testing::ArbitraryCosts costs(seed);
      plan::PlanOptions searched;
      searched.costs = &costs;
      searched.effort = 2;
      searched.disabled = {"block"};  // the whole of it is another choice
      seen.insert(planned(searched));
    }
    EXPECT_EQ(seen, (std::set<int>{0, 1})) << size;
  }
}

TEST(Stages, ForcedQuestionsHaveNames) {
  auto g = ir::parse(downsample(13, 1, 32, true));
  ASSERT_TRUE(g);
  plan::PlanOptions o;
  o.forced = {"stagings"};
  auto p = plan::make_plan(*g, cpu::providers(), o);
  ASSERT_FALSE(p);
  EXPECT_NE(
      p.error().message.find(
          "--force=stagings: no choice of this name can be forced\n  known: fuse-conv-pool, stages, stage-operand, stage-store"),
      std::string::npos);
  o.forced = o.disabled = {"stage-operand"};
  p = plan::make_plan(*g, cpu::providers(), o);
  ASSERT_FALSE(p);
  EXPECT_NE(p.error().message.find("give one of them"), std::string::npos);
  o.disabled.clear();
  p = plan::make_plan(*g, cpu::providers(), o);
  ASSERT_TRUE(p);
  const auto& all = p->plan.decisions;
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const region::Decision& d) {
    return d.choice == "stage-operand" && d.candidates[d.chosen].name == "row-tiles" && has(d.reasons, cause::forced);
  }));
}

TEST(Stages, AnIndependentStageMayNotReadAnother) {
  auto g = ir::parse(block(7, 3, 1, 16));
  ASSERT_TRUE(g);
  auto p = plan::make_plan(*g, cpu::providers(), {});
  ASSERT_TRUE(p);
  region::Plan& plan = p->plan;
  ASSERT_TRUE(region::verify(plan));
  for (std::size_t i = 0; i + 1 < plan.regions.size(); ++i) {
    region::Region both = plan.regions[i];
    if (both.packed.empty()) continue;  // then raw weights of the second would be missed first
    const region::Region& next = plan.regions[i + 1];
    if (next.stages[0].anchor.inputs.empty() || next.stages[0].anchor.inputs[0].buffer != both.stages[0].stores[0].buffer) continue;
    both.stages.push_back(next.stages[0]);
    both.independent = true;
    plan.regions[i] = both;
    const auto status = region::verify(plan);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("reads a buffer that one of them stores to"), std::string::npos)
        << status.error().message;
    return;
  }
  FAIL() << "no two regions in a row";
}

}  // namespace
}  // namespace octavo
