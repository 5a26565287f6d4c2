// C10 a requantize between conv and conv, C12 residual adds with unequal ranges, C15 two convs that read one value.
#include "cases/judge.h"

namespace octavo::cases {
namespace {

using ir::ValueId;

// C10: conv -> pair -> split -> pair at another scale -> conv.
Net requantized(Form form, float second) {
  Net n(form, 31);
  const ValueId v = n.pair(n.relu(n.conv(n.pair(n.input("x", {1, 8, 6, 6}), 0.03F), 16)), 0.05F);
  n.output(n.conv(n.pair(n.channels(v, 0, 8), second), 8));
  n.output(n.conv(n.channels(v, 8, 16), 8));
  return n;
}

TEST(C10Requantize, NoRegionOfItsOwn) {
  const Facts f = judge(requantized(Form::explicit_qdq, 0.07F));
  EXPECT_EQ(f.difference, "");
  EXPECT_EQ(f.layers, 3) << f.listing;
  EXPECT_EQ(f.copies + f.loose + f.floats, 0) << f.listing;
  EXPECT_NE(f.hash, judge(requantized(Form::explicit_qdq, 0.05F)).hash);
}

TEST(C10Requantize, ControlWithoutFusionItStandsAlone) {
  const Facts f = judge(requantized(Form::explicit_qdq, 0.07F), {.disabled = {"move-view-slice", "fuse-epilogue"}});
  EXPECT_GT(f.layers, 3) << f.listing;
  EXPECT_GT(f.loose, 0) << f.listing;
}

// C12: which branches of the add have pairs, at 2.5 / 127 and 7.0 / 127.
struct Branches {
  bool chain, skip;
};

Net residual(Form form, Branches b) {
  Net n(form, 32);
  const ValueId stem = n.relu(n.conv(n.pair(n.input("x", {1, 8, 6, 6}), 0.03F), 16));
  ValueId y = n.conv(n.pair(stem, 7.0F / 127), 16);
  if (b.chain) y = n.pair(y, 2.5F / 127);
  const ValueId sum = n.relu(n.add(y, b.skip ? n.pair(stem, 7.0F / 127) : stem));
  n.output(n.conv(n.pair(sum, 0.06F), 8, {.kernel = 1}));
  return n;
}

class C12Residual : public ::testing::TestWithParam<Branches> {};

TEST_P(C12Residual, AddIsAnEpilogue) {
  const Facts f = judge(residual(Form::explicit_qdq, GetParam()));
  EXPECT_EQ(f.difference, "");
  EXPECT_EQ(f.layers, 3) << f.listing;
  EXPECT_EQ(f.copies + f.loose + f.floats, 0) << f.listing;
}

INSTANTIATE_TEST_SUITE_P(Branches, C12Residual,
                         ::testing::Values(Branches{false, false}, Branches{false, true}, Branches{true, false},
                                           Branches{true, true}));

TEST(C12Residual, EachPlacementMeansSomethingElse) {
  std::set<std::string> hashes;
  for (const bool chain : {false, true}) {
    for (const bool skip : {false, true}) hashes.insert(judge(residual(Form::explicit_qdq, {chain, skip})).hash);
  }
  EXPECT_EQ(hashes.size(), 4U);
}

TEST(C12Residual, ControlWithoutFusion) {
  EXPECT_GT(judge(residual(Form::explicit_qdq, {true, true}), {.disabled = {"fuse-epilogue"}}).layers, 3);
}

// C15: two 1x1 heads on one value, with a pair before each or one before both.
Net heads(Form form, bool shared) {
  Net n(form, 33);
  const ValueId stem = n.relu(n.conv(n.pair(n.input("x", {1, 8, 6, 6}), 0.03F), 32));
  const ValueId one = n.pair(stem, 0.04F);
  for (int i = 0; i < 2; ++i) {
    const ValueId y = n.relu(n.conv(shared ? one : n.pair(stem, 0.04F), 16, {.kernel = 1}));
    n.output(n.conv(n.pair(y, 0.05F), 8));
  }
  return n;
}

TEST(C15Heads, PairsOrOnePairAreTheSame) {
  const Facts f = judge(heads(Form::explicit_qdq, true));
  EXPECT_EQ(f.difference, "");
  EXPECT_LE(f.layers, 5) << f.listing;
  EXPECT_EQ(f.copies + f.loose + f.floats, 0) << f.listing;
  const Facts apart = same_as_counterpart([](Form form) { return heads(form, false); });
  EXPECT_EQ(apart.hash, f.hash) << apart.listing;
  const Net mutated = heads(Form::explicit_qdq, true);
  EXPECT_NE(judge(heads(Form::explicit_qdq, true), {.disabled = {"fuse-epilogue"}}).hash, f.hash);
  EXPECT_EQ(mutated.graph.outputs.size(), 2U);
}

// The halves of a CSP block: both convs read one value and meet in a concat.
Net halves(Form form, bool shared) {
  Net n(form, 34);
  const ValueId stem = n.relu(n.conv(n.pair(n.input("x", {1, 8, 6, 6}), 0.03F), 32));
  const ValueId one = n.pair(stem, 0.04F);
  std::vector<ValueId> parts;
  for (int i = 0; i < 2; ++i) parts.push_back(n.silu(n.conv(shared ? one : n.pair(stem, 0.04F), 16, {.kernel = 1})));
  n.output(n.conv(n.pair(n.concat(parts), 0.05F), 8));
  return n;
}

TEST(C15Heads, MergingIsPriced) {
  const Facts f = judge(halves(Form::explicit_qdq, true), {.effort = 3});
  EXPECT_EQ(f.difference, "");
  const region::Decision* d = decision(f, "horizontal");
  ASSERT_NE(d, nullptr) << f.listing;
  ASSERT_EQ(d->candidates.size(), 2U) << f.listing;
  EXPECT_TRUE(d->candidates[1].seconds > 0 || !d->candidates[1].notes.empty()) << "priced, or why not\n" << f.listing;
  EXPECT_EQ(judge(halves(Form::explicit_qdq, false), {.effort = 3}).hash, f.hash) << "a pair each or one for both";
  EXPECT_EQ(decision(judge(halves(Form::explicit_qdq, true), {.disabled = {"horizontal"}, .effort = 3}), "horizontal"), nullptr);
}

}  // namespace
}  // namespace octavo::cases
