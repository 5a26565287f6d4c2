// Which products and softmaxes become one region: spelled out by exporters, the Attention operator as import expands it, and what does not.
#include "plan/candidates/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cpu/provider.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "reference/evaluate.h"
#include "region/stage_graph.h"
#include "support/feeds.h"
#include "support/run_plan.h"

namespace octavo {
namespace {

constexpr const char* kHead = R"(graph "g"
q = input : f32[1,2,21,8]
k = input : f32[1,2,8,30]
v = input : f32[1,2,30,16]
)";

/// Operators by region: "matmul softmax matmul", one region a line.
std::string grouping(const region::Plan& plan) {
  std::string out;
  for (const region::Region& r : plan.regions) {
    for (const region::Stage& s : r.stages)
      out += (&s == r.stages.data() ? "" : " ") + std::string(s.anchor.none() ? "pass" : ir::name_of(s.anchor.op));
    out += "\n";
  }
  return out;
}

region::Plan planned(const std::string& text, const std::set<std::string, std::less<>>& disabled = {}) {
  const auto g = ir::parse(text);
  EXPECT_TRUE(g) << g.error().message;
  plan::PlanOptions o;
  o.disabled = disabled;
  auto p = plan::make_plan(*g, cpu::providers(), o);
  EXPECT_TRUE(p) << p.error().message;
  const auto ok = region::verify(p->plan);
  EXPECT_TRUE(ok) << ok.error().message;
  for (const region::Region& r : p->plan.regions) {
    EXPECT_EQ(region::reads_of(r).size(), r.graph_inputs.size()) << r.name;
    EXPECT_EQ(region::results_of(r).size(), r.graph_outputs.size()) << r.name;
  }
  const auto again = region::from_json(region::to_json(p->plan));
  EXPECT_TRUE(again) << again.error().message;
  const auto feeds = testing::seeded_feeds(*g, 7);
  const auto want = reference::evaluate(*g, feeds);
  const auto got = testing::run_plan(p->plan, cpu::providers(), feeds, false);
  EXPECT_TRUE(want && got);
  for (std::size_t i = 0; want && got && i < want->size(); ++i) {
    const auto a = (*want)[i].data<float>(), b = (*got)[i].data<float>();
    EXPECT_EQ(a.size(), b.size());
    for (std::size_t k = 0; k < std::min(a.size(), b.size()); ++k) EXPECT_NEAR(a[k], b[k], 1e-4F * (1 + std::abs(a[k]))) << k;
  }
  return std::move(p->plan);
}

TEST(AttentionRegions, SpelledOutWithScaleAndMask) {
  const std::string text = std::string(kHead) + R"(m = input : f32[1,1,1,30]
s = matmul q k
c = constant f32[] (8)
d = div s c
e = add d m
p = softmax e {axis=3}
y = matmul p v
output y
)";
  const region::Plan joined = planned(text);
  EXPECT_EQ(grouping(joined), "matmul softmax matmul\n");
  EXPECT_EQ(joined.regions[0].tactic.name().rfind("cpu.attention.f32.queries.", 0), 0U) << joined.regions[0].tactic.name();
  EXPECT_EQ(region::kept_from_memory(joined.regions[0]).size(), 2U);
  EXPECT_EQ(grouping(planned(text, {"attention"})), "matmul\nsoftmax\nmatmul\n");
}

TEST(AttentionRegions, RoundedBetweenTheParts) {
  const std::string text = std::string(kHead) + R"(qv = view q q=s8(0.03,0)
kv = view k q=s8(0.02,0)
vv = view v q=s8(0.04,0)
s = matmul qv kv
sv = view s q=s8(0.1,0)
p = softmax sv {axis=3}
pv = view p q=s8(0.004,0)
y = matmul pv vv
yv = view y q=s8(0.05,0)
output yv
)";
  EXPECT_NE(grouping(planned(text)).find("matmul softmax matmul\n"), std::string::npos);
  EXPECT_EQ(grouping(planned(text, {"attention"})).find("matmul softmax matmul\n"), std::string::npos);
}

TEST(AttentionRegions, TwoInOneNetwork) {
  const std::string text = std::string(kHead) + R"(s = matmul q k
p = softmax s {axis=3}
y = matmul p v
w = input : f32[1,2,16,30]
t = matmul y w
r = softmax t {axis=3}
z = matmul r v
output z
)";
  EXPECT_EQ(grouping(planned(text)), "matmul softmax matmul\nmatmul softmax matmul\n");
}

TEST(AttentionRegions, WhatIsReadElsewhereStaysApart) {
  const std::string scores = std::string(kHead) + "s = matmul q k\np = softmax s {axis=3}\ny = matmul p v\noutput y\noutput s\n";
  EXPECT_EQ(grouping(planned(scores)), "matmul\nsoftmax\nmatmul\n");
  const std::string probabilities =
      std::string(kHead) + "s = matmul q k\np = softmax s {axis=3}\ny = matmul p v\noutput y\noutput p\n";
  EXPECT_EQ(grouping(planned(probabilities)), "matmul\nsoftmax\nmatmul\n");
}

TEST(AttentionRegions, AnotherAxisOrSideStaysApart) {
  const std::string axis = std::string(kHead) + "s = matmul q k\np = softmax s {axis=2}\ny = matmul p v\noutput y\n";
  EXPECT_EQ(grouping(planned(axis)), "matmul\nsoftmax\nmatmul\n");
  const std::string side =
      std::string(kHead) + "u = input : f32[1,2,16,21]\ns = matmul q k\np = softmax s {axis=3}\ny = matmul u p\noutput y\n";
  EXPECT_EQ(grouping(planned(side)), "matmul\nsoftmax\nmatmul\n");
}

}  // namespace
}  // namespace octavo
