// --qdq permit never costs time: pairs that are free, or that make an activation a table, stay. Times are made up: a microsecond an operation.
#include "plan/precision/choose_pairs.h"

#include <gtest/gtest.h>

#include "base/causes/plan_search.h"
#include "ir/text.h"
#include "reference/oracle_provider.h"

namespace octavo {
namespace {

/// A region takes as many microseconds as its programs have operations, and one more. A table is one operation, a sigmoid some thirty.
class Operations final : public plan::Costs {
 public:
  explicit Operations(std::optional<Pair> whole = {}) : whole_(whole) {}
  Result<std::vector<plan::TacticTime>> price(const region::Region& r, const region::Plan&,
                                              const std::vector<region::Offer>& offers) override {
    std::size_t count = 1;
    for (const region::Stage& s : r.stages) count += s.program.code.size();
    std::vector<plan::TacticTime> out;
    for (const region::Offer& o : offers)
      out.push_back({o.refusal.empty() ? static_cast<double>(count) * 1e-6 : -1, plan::TimeSource::measured});
    return out;
  }
  Result<std::optional<Pair>> compare(const region::Plan&, const region::Plan&) override { return whole_; }
  plan::CostSource source() const override { return plan::CostSource::measured; }

 private:
  std::optional<Pair> whole_;
};

std::string pair(const std::string& to, const std::string& from, const std::string& scale) {
  const std::string q = " q=s8(" + scale + ",0)\n";
  return to + "_q = quantize " + from + q + to + " = dequantize " + to + "_q" + q;
}

/// conv1 -> pair -> SiLU (`silu`; else relu without a pair) -> pair -> conv2 -> (`inside`: pair -> add of a pair's result -> pair -> conv3).
ir::Graph network(bool silu, bool inside) {
  const std::string attrs = " {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]}";
  std::string t = "graph \"g\"\nx = input : f32[1,4,6,6]\n" + pair("xr", "x", "0.01");
  for (const char* w : {"1", "2", "3"}) t += std::string("w") + w + " = constant s8[4,4,3,3] q=s8(0.01,0) seed:" + w + "\n";
  t += "c1 = conv xr w1" + attrs + " from {\"conv1\"}\n";
  if (silu) {
    t += pair("c1r", "c1", "0.05") + "s = sigmoid c1r from {\"sigmoid\"}\na = mul c1r s from {\"mul\"}\n";
  } else {
    t += "a = relu c1 from {\"relu\"}\n";
  }
  t += pair("ar", "a", "0.02") + "c2 = conv ar w2" + attrs + " from {\"conv2\"}\n";
  if (inside) {
    t += pair("c2r", "c2", "0.03") + "sum = add c2r ar from {\"add\"}\n" + pair("sumr", "sum", "0.04");
    t += "c3 = conv sumr w3" + attrs + " from {\"conv3\"}\noutput c3\n";
  } else {
    t += "output c2\n";
  }
  auto g = ir::parse(t);
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  return g ? std::move(*g) : ir::Graph{};
}

struct Asked {
  bool permit = true;
  int effort = 1;
  std::set<std::string, std::less<>> forced = {}, disabled = {};
  std::vector<plan::PrecisionRule> rules = {};
  std::optional<plan::Costs::Pair> whole = {};
};

plan::Planned planned(const ir::Graph& g, const Asked& a = {}) {
  Operations costs(a.whole);
  plan::PlanOptions o;
  o.costs = &costs;
  o.effort = a.effort;
  o.permit_pairs = a.permit;
  o.forced = a.forced;
  o.disabled = a.disabled;
  o.disabled.insert("stages");  // a region each
  o.precisions = a.rules;
  auto p = plan::make_plan(g, {&reference::oracle_provider()}, o);
  EXPECT_TRUE(p) << (p ? "" : p.error().message);
  return p ? std::move(*p) : plan::Planned{};
}

const region::Decision* decision(const plan::Planned& p) {
  for (const region::Decision& d : p.plan.decisions) {
    if (d.choice == "pairs") return &d;
  }
  return nullptr;
}

std::string chosen(const plan::Planned& p) {
  const region::Decision* d = decision(p);
  return d == nullptr ? "" : d->candidates[d->chosen].name;
}

double operations(const plan::Planned& p) {
  double sum = 0;
  for (const region::Region& r : p.plan.regions) sum += r.seconds;
  return sum;
}

TEST(ChoosePairs, PairsThatMakeATableStayWhereTheyStand) {
  const ir::Graph g = network(true, false);
  const auto demanded = planned(g, {.permit = false}), permitted = planned(g), forced = planned(g, {.forced = {"pairs"}});
  EXPECT_GT(operations(forced), 1.5 * operations(demanded))
      << "the test has its subject: without the pair the activation is arithmetic";
  EXPECT_EQ(chosen(permitted), "as-they-stand");
  EXPECT_EQ(region::plan_hash(permitted.plan), region::plan_hash(demanded.plan));
  EXPECT_EQ(permitted.permitted.pairs.taken, 0);
  const region::Decision* d = decision(permitted);
  ASSERT_NE(d, nullptr);
  EXPECT_DOUBLE_EQ(d->candidates[0].seconds, operations(demanded));
  EXPECT_DOUBLE_EQ(d->candidates[1].seconds, operations(forced));
}

TEST(ChoosePairs, RoundingsInsideARegionGoAndTablesStay) {
  const ir::Graph g = network(true, true);
  const auto demanded = planned(g, {.permit = false}), permitted = planned(g);
  EXPECT_EQ(chosen(permitted), "permitted-but-inner");
  EXPECT_LT(operations(permitted), 0.98 * operations(demanded));
  EXPECT_GT(permitted.permitted.pairs.taken, 0);
}

TEST(ChoosePairs, WithoutAnActivationBehindAPairAllPairsBecomePermissions) {
  const ir::Graph g = network(false, true);
  const auto demanded = planned(g, {.permit = false}), permitted = planned(g), forced = planned(g, {.forced = {"pairs"}});
  EXPECT_EQ(chosen(permitted), "permitted");
  EXPECT_LT(operations(permitted), 0.98 * operations(demanded));
  EXPECT_EQ(region::plan_hash(permitted.plan), region::plan_hash(forced.plan));
  EXPECT_EQ(decision(forced), nullptr) << "nothing is compared where the caller decides";
}

TEST(ChoosePairs, WholeRunsHaveTheLastWord) {
  const ir::Graph g = network(false, true);
  EXPECT_EQ(chosen(planned(g, {.effort = 2, .whole = plan::Costs::Pair{2, 1}})), "permitted");
  const auto slower = planned(g, {.effort = 2, .whole = plan::Costs::Pair{1, 2}});
  EXPECT_EQ(chosen(slower), "as-they-stand");
  EXPECT_EQ(decision(slower)->reasons[0].cause, cause::not_faster_in_whole_runs);
}

TEST(ChoosePairs, WherePairsContradictARuleThereIsNothingToCompareWith) {
  const auto p = planned(network(false, true), {.rules = {{"conv2", "float32"}}});
  EXPECT_EQ(chosen(p), "permitted");
  EXPECT_EQ(decision(p)->candidates[0].seconds, -1);
  EXPECT_EQ(decision(p)->candidates[0].notes[0].cause, cause::not_planned);
}

TEST(ChoosePairs, DisabledEveryPairStays) {
  const ir::Graph g = network(false, true);
  const auto p = planned(g, {.disabled = {"pairs"}});
  EXPECT_EQ(decision(p), nullptr);
  EXPECT_EQ(region::plan_hash(p.plan), region::plan_hash(planned(g, {.permit = false}).plan));
}

/// Every candidate is a plan without measured times at effort 0: estimates decide there, and the model is never priced above the demanded form.
TEST(ChoosePairs, EstimatesDecideAtEffort0) {
  for (const bool silu : {false, true}) {
    const ir::Graph g = network(silu, true);
    const auto p = planned(g, {.effort = 0});
    const region::Decision* d = decision(p);
    ASSERT_NE(d, nullptr);
    EXPECT_LE(d->candidates[d->chosen].seconds, d->candidates[0].seconds);
  }
}

}  // namespace
}  // namespace octavo
