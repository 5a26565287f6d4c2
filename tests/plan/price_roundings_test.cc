// Which roundings are said to cost time, by costs that a test sets.
#include "plan/advice/price_roundings.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "plan/cost.h"
#include "reference/oracle_provider.h"

namespace octavo {
namespace {

/// Two convolutions, each with a rounding before its sigmoid.
constexpr const char* kTwo = R"(
graph "g"
x = input : f32[1,4,5,5]
xq = view x q=u8(0.01,128) from {"xq"}
w1 = constant s8[4,4,1,1] q=s8(0.01,0) seed:1
r1 = conv xq w1 {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]} from {"conv1"}
m1 = view r1 q=s8(0.02,0) from {"mid1"}
a1 = sigmoid m1 from {"act1"}
y1 = view a1 q=u8(0.004,0) from {"end1"}
w2 = constant s8[3,4,3,3] q=s8(0.01,0) seed:2
r2 = conv y1 w2 {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"conv2"}
m2 = view r2 q=s8(0.03,0) from {"mid2"}
a2 = sigmoid m2 from {"act2"}
y2 = view a2 q=u8(0.004,0) from {"end2"}
output y2
)";

/// Every region costs 1 us, and the one with the first rounding 2 us if asked for; whole runs are told.
class Told final : public plan::Costs {
 public:
  bool first_costs = false, without_costs = false;
  double whole = 1;  ///< the second plan's time, the first's being 1
  int compared = 0;

  Result<std::vector<plan::TacticTime>> price(const region::Region& r, const region::Plan&,
                                              const std::vector<region::Offer>& offers) override {
    const bool mid = r.onnx_nodes.contains("mid1");
    const bool without = !mid && !r.onnx_nodes.contains("mid2");
    const double seconds = (first_costs && mid) || (without_costs && without) ? 2e-6 : 1e-6;
    return std::vector<plan::TacticTime>(offers.size(), {seconds, plan::TimeSource::measured});
  }
  Result<std::optional<Pair>> compare(const region::Plan&, const region::Plan&) override {
    ++compared;
    return Pair{1, whole};
  }
  plan::CostSource source() const override { return plan::CostSource::measured; }
};

plan::Roundings priced(Told& costs, int effort) {
  plan::PlanOptions options;
  options.effort = effort;
  options.costs = &costs;
  auto found = plan::price_roundings(*ir::parse(kTwo), {&reference::oracle_provider()}, options);
  EXPECT_TRUE(found) << (found ? "" : found.error().message);
  return std::move(*found);
}

using Cost = plan::PricedRounding::Cost;

TEST(PriceRoundings, RegionsTellThoseThatCostTimeAlone) {
  Told costs;
  costs.first_costs = true;
  const auto found = priced(costs, 1);
  ASSERT_EQ(found.each.size(), 2U);
  EXPECT_EQ(found.each[0].cost, Cost::alone);
  EXPECT_EQ(found.each[1].cost, Cost::none);
  EXPECT_EQ(found.costly, 1);
  EXPECT_EQ(costs.compared, 0) << "whole runs are of effort 2";
  EXPECT_LT(found.all.whole_with, 0);
}

TEST(PriceRoundings, WholeRunsTellTheOthers) {
  Told costs;
  costs.first_costs = true;
  costs.whole = 0.9;
  const auto found = priced(costs, 2);
  ASSERT_EQ(found.each.size(), 2U);
  EXPECT_EQ(found.each[0].cost, Cost::alone);
  EXPECT_EQ(found.each[1].cost, Cost::whole);
  EXPECT_EQ(found.costly, 2);
  EXPECT_DOUBLE_EQ(found.without_costly.whole_without, 0.9);
  EXPECT_EQ(found.without_costly.graph.order().size(), found.all.graph.order().size());
  Told same;
  same.first_costs = true;
  same.whole = 0.995;
  EXPECT_EQ(priced(same, 2).costly, 1) << "half a percent may be noise";
}

TEST(PriceRoundings, WholeRunsAreBelievedWhereRegionsSayTheOpposite) {
  Told costs;
  costs.without_costs = true;  // as if a neighbour had the machine while those were timed
  costs.whole = 0.8;
  const auto found = priced(costs, 2);
  ASSERT_EQ(found.each.size(), 2U);
  EXPECT_GT(found.each[0].without, found.each[0].with);
  EXPECT_EQ(found.each[0].cost, Cost::whole);
  EXPECT_EQ(found.each[1].cost, Cost::whole);
  costs.whole = 1.2;
  EXPECT_EQ(priced(costs, 2).costly, 0);
  EXPECT_EQ(priced(costs, 1).costly, 0);
}

TEST(PriceRoundings, NothingCostsTimeWhereNothingIsFaster) {
  Told costs;
  const auto found = priced(costs, 2);
  EXPECT_EQ(found.costly, 0);
  EXPECT_EQ(found.all.without, found.all.with);
  EXPECT_FALSE(found.all.same_plan);
}

/// The codes of conv1 are stored for conv2, and the Add reads the floats.
constexpr const char* kResidual = R"(
graph "g"
x = input : f32[1,4,5,5]
xq = view x q=u8(0.01,128) from {"xq"}
w1 = constant s8[4,4,1,1] q=s8(0.01,0) seed:1
r1 = conv xq w1 {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]} from {"conv1"}
m1 = view r1 q=s8(0.02,0) from {"mid1"}
w2 = constant s8[4,4,3,3] q=s8(0.01,0) seed:2
r2 = conv m1 w2 {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"conv2"}
s = add r2 READ from {"add"}
y = view s q=u8(0.05,128) from {"end"}
output y
)";

ir::Graph residual(const std::string& read, const std::string& more = "") {
  std::string text = kResidual;
  text.replace(text.find("READ"), 4, read);
  return std::move(*ir::parse(text + more));
}

TEST(PriceRoundings, FloatsBesideCodesAreARoundingLeftOut) {
  using Kind = plan::Rounding::Kind;
  Told costs;
  costs.whole = 0.9;
  plan::PlanOptions options;
  options.effort = 2;
  options.costs = &costs;
  const std::vector<const region::Provider*> providers = {&reference::oracle_provider()};
  const auto found = plan::price_roundings(residual("r1"), providers, options);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->each.size(), 1U);
  const plan::PricedRounding& p = found->each[0];
  EXPECT_EQ(p.rounding.kind, Kind::left_out);
  EXPECT_EQ(p.rounding.tensor, "r1");
  EXPECT_EQ(p.rounding.readers, std::set<std::string>{"add"});
  EXPECT_EQ(p.rounding.onnx_nodes, std::set<std::string>{"add"});
  EXPECT_EQ(p.rounding.pair, std::set<std::string>{"mid1"});
  EXPECT_FALSE(p.same_plan);
  EXPECT_EQ(found->costly, 1) << "whole runs say so";
  // What comes out is the network in which the Add reads the codes: nothing is demanded there, and planning it is planning that.
  const auto codes = plan::price_roundings(residual("m1"), providers, options);
  ASSERT_TRUE(codes) << codes.error().message;
  EXPECT_TRUE(codes->each.empty());
  EXPECT_EQ(ir::print(found->all.graph), ir::print(codes->all.graph));
  // A result of the network is float32 in any case.
  EXPECT_TRUE(plan::roundings_of(residual("r1", "output r1\n"), options)->empty());
}

/// Attention of one head: queries are scaled behind a slice, so that the layer's result is stored as codes (keys) and as floats.
constexpr const char* kAttention = R"(
graph "g"
x = input : f32[6,4]
xq = view x q=u8(0.01,128) from {"xq"}
w = constant s8[4,8] q=s8(0.01,0) seed:1
r = gemm xq w from {"layer"}
k = view r q=u8(0.02,128) from {"keys"}
k0 = slice k {ends=[6,8], starts=[0,4], steps=[1,1]}
k1 = reshape k0 {shape=[2,3,4]}
k2 = transpose k1 {perm=[0,2,1]}
q0 = slice r {ends=[6,4], starts=[0,0], steps=[1,1]} from {"slice"}
q1 = reshape q0 {shape=[2,3,4]} from {"reshape"}
root = constant f32[1] (0.5)
q2 = mul q1 root from {"scale"}
q = view q2 q=u8(0.01,128) from {"queries"}
s = matmul q k2 from {"scores"}
m = view s q=u8(0.03,128) from {"pair of scores"}
p = softmax m {axis=2} from {"softmax"}
pq = view p q=u8(0.004,0) from {"probabilities"}
output pq
)";

TEST(PriceRoundings, AttentionNamesThePairsThatForceMore) {
  using Kind = plan::Rounding::Kind;
  Told costs;
  plan::PlanOptions options;
  options.effort = 1;
  options.costs = &costs;
  const std::vector<const region::Provider*> providers = {&reference::oracle_provider()};
  const auto found = plan::price_roundings(*ir::parse(kAttention), providers, options);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->each.size(), 2U);
  const plan::PricedRounding *twice = &found->each[0], *scores = &found->each[1];
  EXPECT_EQ(twice->rounding.kind, Kind::left_out);
  EXPECT_EQ(twice->rounding.tensor, "r");
  EXPECT_EQ(twice->rounding.readers, std::set<std::string>{"mul"}) << "who reads behind the reshape";
  EXPECT_EQ(twice->rounding.onnx_nodes, std::set<std::string>{"scale"});
  EXPECT_EQ(twice->rounding.pair, std::set<std::string>{"keys"});
  EXPECT_NE(twice->region.find("scale"), std::string::npos) << twice->region;
  EXPECT_EQ(scores->rounding.kind, Kind::inside) << "nothing stores codes of scores, a softmax reads floats";
  EXPECT_EQ(scores->rounding.onnx_nodes, std::set<std::string>{"pair of scores"});
  EXPECT_EQ(scores->rounding.source, "matmul");
  EXPECT_EQ(scores->rounding.readers, std::set<std::string>{"softmax"});
  EXPECT_NE(scores->region.find("scores"), std::string::npos) << scores->region;
  // Where the layer's epilogue scales the queries, no floats are stored.
  options.usual = {"above-moves"};
  const auto others = plan::roundings_of(*ir::parse(kAttention), options);
  ASSERT_TRUE(others);
  ASSERT_EQ(others->size(), 1U);
  EXPECT_EQ(others->front().kind, Kind::inside);
}

}  // namespace
}  // namespace octavo
