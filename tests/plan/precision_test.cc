// The choice among int8, float32 and bfloat16, with made-up times.
#include "plan/precision/precision.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/causes/kernels.h"
#include "base/causes/plan_precision.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "plan/precision/permit_error.h"
#include "reference/oracle_provider.h"
#include "report/sentences.h"

namespace octavo {
namespace {

/// Microseconds by "precision" or "node precision" of a region; 1 for what is not listed.
class Times final : public plan::Costs {
 public:
  explicit Times(std::map<std::string, double> table, std::optional<Pair> whole = {}) : table_(std::move(table)), whole_(whole) {}
  Result<std::vector<plan::TacticTime>> price(const region::Region& r, const region::Plan&,
                                              const std::vector<region::Offer>& offers) override {
    double us = table_.contains(to_string(r.precision)) ? table_[to_string(r.precision)] : 1;
    for (const std::string& node : r.onnx_nodes) {
      const auto found = table_.find(node + " " + to_string(r.precision));
      if (found != table_.end()) us = found->second;
    }
    std::vector<plan::TacticTime> out;
    for (const region::Offer& o : offers) out.push_back({o.refusal.empty() ? us * 1e-6 : -1, plan::TimeSource::measured});
    return out;
  }
  Result<std::optional<Pair>> compare(const region::Plan& first, const region::Plan& second) override {
    EXPECT_NE(region::plan_hash(first), region::plan_hash(second));
    for (const region::Region& r : second.regions) EXPECT_FALSE(r.tactic.none()) << r.name;
    return whole_;
  }
  plan::CostSource source() const override { return plan::CostSource::measured; }

 private:
  std::map<std::string, double> table_;
  std::optional<Pair> whole_;
};

/// The oracle, as on a processor without bfloat16.
class NoBfloat16 final : public region::Provider {
 public:
  std::string_view name() const override { return oracle_.name(); }
  std::vector<region::Offer> offers(const region::Region& r, const region::Plan& p) const override {
    auto out = oracle_.offers(r, p);
    for (region::Offer& o : out) {
      if (r.precision == ir::DType::bf16)
        o = {*region::parse_tactic("toy.bf16"), {because<cause::capability_missing>("toy.bf16", "none")}, 0};
    }
    return out;
  }
  Result<region::Artifact> compile(const region::Region& r, const region::Plan& p, const region::Tactic& t) const override {
    return oracle_.compile(r, p, t);
  }
  Result<std::unique_ptr<region::Kernel>> load(const region::Region& r, const region::Plan& p,
                                               const region::ArtifactView& artifact) const override {
    return oracle_.load(r, p, artifact);
  }

 private:
  const region::Provider& oracle_ = reference::oracle_provider();
};

// conv1 -> relu1 -> conv2 -> relu2 -> conv3, no two of one shape: regions of one key have one price.
ir::Graph chain() {
  const std::string attrs = " {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]}";
  std::string t = "graph \"g\"\nx = input : f32[1,4,6,6]\n";
  t += "w1 = constant f32[5,4,3,3] seed:1\nw2 = constant f32[6,5,3,3] seed:2\nw3 = constant f32[4,6,3,3] seed:3\n";
  t += "c1 = conv x w1" + attrs + " from {\"conv1\"}\nr1 = relu c1 from {\"relu1\"}\n";
  t += "c2 = conv r1 w2" + attrs + " from {\"conv2\"}\nr2 = relu c2 from {\"relu2\"}\n";
  t += "c3 = conv r2 w3" + attrs + " from {\"conv3\"}\noutput c3\n";
  auto g = ir::parse(t);
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  return g ? std::move(*g) : ir::Graph{};
}
const std::map<std::string, float> kRanges{{"x", 0.03F}, {"r1", 0.05F}, {"r2", 0.07F}};
constexpr plan::LayerTypes kAll{"int8", "float32", "bfloat16"};

struct Asked {
  std::map<std::string, double> times;
  plan::LayerTypes allowed = kAll;
  std::map<std::string, float> ranges = kRanges;
  std::vector<plan::PrecisionRule> rules = {};
  std::optional<double> max_error = {};
  int effort = 2;
  const region::Provider* provider = &reference::oracle_provider();
  std::optional<plan::Costs::Pair> whole = {};  ///< what every comparison of whole plans says
};

Result<plan::Planned> plan_of(const Asked& a) {
  Times costs(a.times, a.whole);
  plan::PlanOptions o;
  o.costs = &costs;
  o.effort = a.effort;
  o.allowed = a.allowed;
  o.ranges = ir::symmetric(a.ranges);
  o.precisions = a.rules;
  o.max_error = a.max_error;
  o.disabled = {"stages"};  // a region each
  return plan::make_plan(chain(), {a.provider}, o);
}

plan::Planned planned(const Asked& a) {
  auto p = plan_of(a);
  EXPECT_TRUE(p) << (p ? "" : p.error().message);
  return p ? std::move(*p) : plan::Planned{};
}

/// "int8 bfloat16 float32": of conv1, conv2, conv3.
std::string precisions(const plan::Planned& p) {
  std::string out;
  for (const char* node : {"conv1", "conv2", "conv3"}) {
    for (const region::Region& r : p.plan.regions) {
      if (r.onnx_nodes.contains(node) && r.stages[0].anchor.weights) out += (out.empty() ? "" : " ") + to_string(r.precision);
    }
  }
  return out;
}

const region::Decision* decision(const plan::Planned& p, const std::string& node) {
  for (const region::Decision& d : p.plan.decisions) {
    if (d.choice == "precision" && d.where == node) return &d;
  }
  return nullptr;
}

/// "int8 1, float32 9, bfloat16 5": the candidates with their microseconds.
std::string candidates(const plan::Planned& p, const std::string& node) {
  std::string out;
  if (const region::Decision* d = decision(p, node)) {
    for (const auto& a : d->candidates)
      out += (out.empty() ? "" : ", ") + a.name + " " + std::to_string(std::lround(a.seconds * 1e6));
  }
  return out;
}
std::string reason(const plan::Planned& p, const std::string& node) {
  const region::Decision* d = decision(p, node);
  return d ? d->candidates[d->chosen].name + ": " + report::sentences(d->reasons) : "no decision";
}

TEST(Precision, TheFastestTypeIsTaken) {
  EXPECT_EQ(precisions(planned({.times = {{"int8", 10}, {"float32", 40}, {"bfloat16", 20}}})), "int8 int8 int8");
  EXPECT_EQ(precisions(planned({.times = {{"int8", 40}, {"float32", 10}, {"bfloat16", 20}}})), "float32 float32 float32");
  EXPECT_EQ(precisions(planned({.times = {{"int8", 40}, {"float32", 20}, {"bfloat16", 10}}})), "bfloat16 bfloat16 bfloat16");
}

TEST(Precision, ALayerEach) {
  const auto p = planned({.times = {{"int8", 20}, {"float32", 30}, {"bfloat16", 25}, {"conv2 bfloat16", 5}, {"conv3 float32", 6}}});
  EXPECT_EQ(precisions(p), "int8 bfloat16 float32");
  EXPECT_EQ(candidates(p, "conv1"), "int8 20, float32 30, bfloat16 25");
  EXPECT_EQ(candidates(p, "conv2"), "int8 20, float32 30, bfloat16 5");
  EXPECT_EQ(candidates(p, "conv3"), "int8 20, float32 6, bfloat16 25");
  EXPECT_EQ(reason(p, "conv2"), "bfloat16: bfloat16 is permitted, and costs less by more than 2 %");
  EXPECT_EQ(reason(p, "conv3"), "float32: int8 is permitted, but float32 costs less");
  for (const region::Region& r : p.plan.regions) {
    if (!r.onnx_nodes.contains("conv2") || !r.stages[0].anchor.weights) continue;
    EXPECT_TRUE(
        report::sentences(r.reasons).starts_with("the measured time of the layer is lower in bfloat16; bfloat16: data and weights "
                                                 "are rounded to bfloat16, sums are float32"))
        << report::sentences(r.reasons);
  }
}

TEST(Precision, WithoutRangesFloat32AndBfloat16) {
  const auto p = planned({.times = {{"float32", 20}, {"bfloat16", 30}, {"conv2 bfloat16", 10}}, .ranges = {}});
  EXPECT_EQ(precisions(p), "float32 bfloat16 float32");
  EXPECT_EQ(candidates(p, "conv2"), "float32 20, bfloat16 10");
}

TEST(Precision, OnlyTypesThatAreAllowed) {
  const std::map<std::string, double> times{{"int8", 30}, {"float32", 20}, {"bfloat16", 10}};
  EXPECT_EQ(precisions(planned({.times = times, .allowed = {"int8", "float32"}})), "float32 float32 float32");
  EXPECT_EQ(precisions(planned({.times = times, .allowed = {"int8"}})), "int8 int8 int8");
  EXPECT_EQ(precisions(planned({.times = times, .allowed = {"int8", "bfloat16"}})), "bfloat16 bfloat16 bfloat16");
  EXPECT_EQ(precisions(planned({.times = times, .allowed = {"bfloat16"}, .effort = 0})), "bfloat16 bfloat16 bfloat16");
}

TEST(Precision, AllowedAloneChangesNothing) {
  for (const int effort : {0, 1}) {
    const auto with = planned({.times = {{"bfloat16", 0.1}}, .effort = effort});
    const auto without = planned({.times = {}, .allowed = {"int8", "float32"}, .effort = effort});
    EXPECT_EQ(region::plan_hash(with.plan), region::plan_hash(without.plan)) << "effort " << effort;
  }
  const auto slower = planned({.times = {{"bfloat16", 50}}});
  EXPECT_EQ(region::plan_hash(slower.plan), region::plan_hash(planned({.times = {}, .allowed = {"int8", "float32"}}).plan));
}

TEST(Precision, TwoPercentAreNotEnough) {
  const auto p = planned({.times = {{"int8", 100}, {"float32", 100}, {"bfloat16", 99}}});
  EXPECT_EQ(precisions(p), "int8 int8 int8");
  EXPECT_EQ(reason(p, "conv2"), "int8: int8 costs at most 2 % more");
}

TEST(Precision, WhatALayerNeedsAroundItCounts) {
  // the rounding of the network's input is a pass of its own
  const auto p =
      planned({.times = {{"int8", 90}, {"float32", 20}, {"bfloat16", 30}, {"conv1 bfloat16", 10}, {"float32->bfloat16", 50}},
               .ranges = {}});
  EXPECT_EQ(precisions(p), "float32 float32 float32");
  EXPECT_EQ(reason(p, "conv1"),
            "float32: bfloat16 is faster for this layer alone, but not with the conversions that it needs around it");
}

TEST(Precision, WholePlansHaveTheLastWord) {
  const std::map<std::string, double> times{{"int8", 30}, {"float32", 40}, {"bfloat16", 10}, {"conv3 float32", 5}};
  EXPECT_EQ(precisions(planned({.times = times, .whole = {{2e-6, 1e-6}}})), "bfloat16 bfloat16 float32");
  const auto slower = planned({.times = times, .whole = {{2e-6, 2e-6}}});
  EXPECT_EQ(precisions(slower), "int8 int8 int8");
  const auto plain = planned({.times = times, .allowed = {"int8"}, .whole = {{2e-6, 2e-6}}});
  EXPECT_EQ(region::plan_hash(slower.plan), region::plan_hash(plain.plan));
  EXPECT_EQ(
      reason(slower, "conv1"),
      "int8: \"bfloat16\" was cheaper by the sum of its regions, but not in runs of the whole plan: 2 us with it, 2 us without it");
  EXPECT_EQ(
      reason(slower, "conv3"),
      "int8: \"float32\" was cheaper by the sum of its regions, but not in runs of the whole plan: 2 us with it, 2 us without it");
}

TEST(Precision, RulesDemand) {
  const std::map<std::string, double> times{{"int8", 10}, {"float32", 20}, {"bfloat16", 90}};
  const auto p = planned({.times = times, .allowed = {"int8", "float32"}, .rules = {{"conv2", "bfloat16"}}});
  EXPECT_EQ(precisions(p), "int8 bfloat16 int8");
  EXPECT_EQ(p.permitted.bfloat16_layers, 1);
  EXPECT_EQ(precisions(planned({.times = times, .rules = {{"r2", "bfloat16"}}})), "int8 int8 bfloat16") << "by the tensor read";
  EXPECT_EQ(precisions(planned({.times = times, .rules = {{"conv3", "float32"}, {"*", "bfloat16"}}})), "bfloat16 bfloat16 float32");
  const auto none = plan_of({.times = times, .rules = {{"relu1", "bfloat16"}}});
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("\"relu1=bfloat16\" asks bfloat16 of no convolution or product"), std::string::npos)
      << none.error().message;
}

TEST(Precision, WithoutAKernel) {
  const NoBfloat16 provider;
  const std::map<std::string, double> times{{"int8", 10}, {"float32", 20}, {"bfloat16", 1}};
  const auto p = planned({.times = times, .provider = &provider});
  EXPECT_EQ(precisions(p), "int8 int8 int8");
  EXPECT_EQ(candidates(p, "conv2"), "int8 10, float32 20, bfloat16 -1000000");
  EXPECT_EQ(report::sentence(decision(p, "conv2")->candidates[2].notes.back()), "needs toy.bf16, this processor has none");
  const auto floats = planned({.times = times, .ranges = {}, .provider = &provider});
  EXPECT_EQ(reason(floats, "conv2"), "float32: no kernel here computes it in bfloat16");
  for (const Asked& demand : {Asked{.times = times, .rules = {{"conv2", "bfloat16"}}, .provider = &provider},
                              Asked{.times = times, .allowed = {"bfloat16"}, .provider = &provider}}) {
    const auto refused = plan_of(demand);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
    EXPECT_NE(refused.error().message.find(
                  "toy.bf16: capability missing: needs toy.bf16, has none\n  allow float32 as well, or drop the rule"),
              std::string::npos)
        << refused.error().message;
  }
}

TEST(Precision, MaxErrorBoundsEveryChoice) {
  const std::map<std::string, double> times{{"int8", 30}, {"float32", 20}, {"bfloat16", 10}};
  const auto exact = planned({.times = {}, .ranges = {}, .effort = 0}).graph;
  std::set<std::string> seen;
  for (const double limit : {1.0, 0.1, 0.03, 0.01, 0.003, 0.001, 1e-9}) {
    for (const bool fast_int8 : {false, true}) {
      auto t = times;
      if (fast_int8) t["int8"] = 5;
      const auto p = planned({.times = t, .max_error = limit});
      const auto error = plan::estimated_error(exact, p.graph);
      ASSERT_TRUE(error);
      EXPECT_LE(*error, limit);
      seen.insert(precisions(p));
    }
  }
  EXPECT_TRUE(seen.contains("int8 int8 int8"));
  EXPECT_TRUE(seen.contains("bfloat16 bfloat16 bfloat16"));
  EXPECT_TRUE(seen.contains("float32 float32 float32"));
  EXPECT_GE(seen.size(), 4U) << "some limit is kept by some layers alone";
}

TEST(Precision, MaxErrorSaysWhichLayersStayedFloatAndWhy) {
  const auto all = planned({.times = {{"int8", 5}, {"float32", 20}}, .allowed = {"int8", "float32"}});
  const auto exact = planned({.times = {}, .ranges = {}, .effort = 0}).graph;
  const auto error = plan::estimated_error(exact, all.graph);
  ASSERT_TRUE(error);
  const double limit = *error * 0.8;
  const auto p = planned({.times = {{"int8", 5}, {"float32", 20}}, .allowed = {"int8", "float32"}, .max_error = limit});
  const std::string found = precisions(p);
  EXPECT_NE(found.find("int8"), std::string::npos) << found;
  EXPECT_NE(found.find("float32"), std::string::npos) << found;
  int kept = 0;
  for (const region::Decision& d : p.plan.decisions) {
    if (d.choice != "precision" || !has(d.reasons, cause::kept_for_max_error)) continue;
    ++kept;
    EXPECT_TRUE(has(d.candidates[0].notes, cause::permitted_with_error)) << report::sentences(d.candidates[0].notes);
  }
  EXPECT_GE(kept, 1);
  const auto refused = plan_of({.times = {}, .allowed = {"int8"}, .max_error = limit});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("allow float32 as well"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace octavo
