// C4 chains of convs, C6 conv + max-pool, C7 and C8 swish, C9 every placement of a bottleneck, C14 no float without a reason.
#include "cases/judge.h"

namespace octavo::cases {
namespace {

using ir::Op;
using ir::ValueId;

Net chain(Form form, bool residual_pairs) {
  Net n(form, 21);
  ValueId x = n.input("x", {1, 8, 8, 8});
  for (int i = 0; i < 4; ++i) {
    x = n.conv(n.pair(x, 0.03F), 16, {.stride = 1 + i % 2});
    if (residual_pairs) x = n.pair(x, 0.04F);
    x = n.relu(x);
  }
  n.output(n.conv(n.pair(x, 0.03F), 8, {.kernel = 1}));
  return n;
}

TEST(C04Chain, ExplicitIsItsTwin) {
  for (const bool inner : {false, true}) {
    const Facts f = same_as_counterpart([&](Form form) { return chain(form, inner); }, inner ? Inner::rounding : Inner::none);
    EXPECT_EQ(f.difference, "");
    EXPECT_EQ(f.layers, 5) << f.listing;
    EXPECT_EQ(f.copies + f.loose + f.floats, 0) << f.listing;
  }
}

TEST(C04Chain, ControlWithoutFusion) {
  const Facts f = judge(chain(Form::explicit_qdq, false), {.disabled = {"fuse-epilogue"}});
  EXPECT_GT(f.layers, 5) << f.listing;
  EXPECT_EQ(f.difference, "");
}

// C6: ResNet's stem. The pair may sit before the pool, behind it, or both.
Net stem(Form form, bool before, bool behind) {
  Net n(form, 22);
  ValueId x = n.relu(n.conv(n.pair(n.input("x", {1, 3, 32, 32}), 0.02F), 64, {.kernel = 7, .stride = 2, .pad = 3}));
  if (before) x = n.pair(x, 0.03F);
  x = n.max_pool(x, 3, 2, 1);
  if (behind) x = n.pair(x, 0.03F);
  n.output(n.conv(x, 64, {.kernel = 1}));
  return n;
}

TEST(C06ConvPool, OneRegionWhereverThePairSits) {
  const Facts f = same_as_counterpart([](Form form) { return stem(form, false, true); });
  EXPECT_EQ(f.difference, "");
  EXPECT_EQ(f.copies + f.loose + f.floats, 0) << f.listing;
  EXPECT_LE(f.layers, 3) << f.listing;
  for (const bool behind : {false, true}) {
    const Facts g = same_as_counterpart([&](Form form) { return stem(form, true, behind); });
    EXPECT_EQ(g.difference, "");
    EXPECT_EQ(g.hash, f.hash) << g.listing;
  }
}

TEST(C06ConvPool, FusedOrProvenSlower) {
  const Facts f = judge(stem(Form::explicit_qdq, false, true), {.effort = 3});
  EXPECT_EQ(f.difference, "");
  const region::Decision* d = decision(f, "fuse-conv-pool");
  ASSERT_NE(d, nullptr) << f.listing;
  EXPECT_EQ(d->candidates.size(), 2U) << f.listing;
  for (const auto& a : d->candidates) EXPECT_TRUE(a.seconds > 0 || !a.notes.empty()) << f.listing;
  EXPECT_EQ(judge(stem(Form::fake_quant, true, true), {.effort = 3}).hash, f.hash);
  // Without "precision": ranges permit float as well, which instructions without dot products of bytes may run faster.
  EXPECT_EQ(judge(stem(Form::counterpart, true, true), {.disabled = {"precision"}, .effort = 3}).hash, f.hash)
      << "the search treats the counterpart alike";
}

TEST(C06ConvPool, ControlWithoutTheLaw) {
  const Options held{.disabled = {"move-view-max-pool"}};
  EXPECT_NE(judge(stem(Form::explicit_qdq, false, true), held).hash, judge(stem(Form::explicit_qdq, true, false), held).hash);
}

// C7: a pair in the middle; what follows is int8 (a table) or a float output.
Net swish(Form form, bool inner, bool int8_follows) {
  Net n(form, 23);
  ValueId y = n.conv(n.pair(n.input("x", {1, 8, 6, 6}), 0.03F), 16);
  if (inner) y = n.pair(y, 0.04F);
  y = n.silu(y);
  n.output(int8_follows ? n.conv(n.pair(y, 0.03F), 8) : y);
  return n;
}

TEST(C07Swish, OneRegionWithThePairInTheMiddle) {
  for (const bool follows : {true, false}) {
    const Facts f = same_as_counterpart([&](Form form) { return swish(form, true, follows); }, Inner::rounding);
    EXPECT_EQ(f.difference, "");
    EXPECT_EQ(f.layers, follows ? 2 : 1) << f.listing;
    EXPECT_EQ(f.copies + f.loose + f.floats, 0) << f.listing;
  }
  EXPECT_NE(judge(swish(Form::explicit_qdq, true, true)).hash, judge(swish(Form::explicit_qdq, false, true)).hash);
}

TEST(C07Swish, ControlTheInnerPairMatters) {
  const Net without = swish(Form::explicit_qdq, false, true);
  EXPECT_NE(judge(swish(Form::explicit_qdq, true, true), {.reference = &without.graph}).difference, "");
}

// C8: nothing between conv and swish.
TEST(C08Swish, WithoutAnInnerPair) {
  const Facts f = same_as_counterpart([](Form form) { return swish(form, false, true); });
  EXPECT_EQ(f.difference, "");
  EXPECT_EQ(f.layers, 2) << f.listing;
  EXPECT_EQ(f.copies + f.loose + f.floats, 0) << f.listing;
}

TEST(C08Swish, BothPrecisionsArePriced) {
  const Facts f = judge(swish(Form::counterpart, false, true), {.effort = 3});
  const region::Decision* d = decision(f, "precision");
  ASSERT_NE(d, nullptr) << f.listing;
  ASSERT_GE(d->candidates.size(), 2U) << f.listing;
  for (const auto& a : d->candidates) EXPECT_GT(a.seconds, 0) << f.listing;
  EXPECT_EQ(decision(judge(swish(Form::explicit_qdq, false, true), {.effort = 3}), "precision"), nullptr)
      << "demanded: no question";
}

// C9: conv, swish, conv, swish, add: a YOLOv8 bottleneck.
enum class Place { inputs, all, not_before_add, add_branch, after_add, doubled };

Net bottleneck(Form form, Place place) {
  Net n(form, 24);
  const bool all = place == Place::all, twice = place == Place::doubled;
  const auto pair = [&](ValueId v, float s) { return twice ? n.double_pair(v, s) : n.pair(v, s); };
  const auto inner = [&](ValueId v, float s) { return all ? n.pair(v, s) : v; };
  const auto block = [&](ValueId x) {
    const ValueId c = inner(n.conv(x, 16), 0.04F);
    return n.op(Op::mul, {c, inner(n.op(Op::sigmoid, {c}), 1.0F / 127)});
  };
  const ValueId x = pair(n.relu(n.conv(pair(n.input("x", {1, 8, 6, 6}), 0.03F), 16)), 0.02F);
  const ValueId y = pair(block(x), 0.02F);
  ValueId z = block(y);
  if (place != Place::not_before_add && place != Place::add_branch && place != Place::inputs) z = pair(z, 0.025F);
  ValueId sum = n.add(z, place == Place::add_branch ? n.pair(x, 0.02F) : x);
  if (place == Place::after_add || all || twice) sum = pair(sum, 0.03F);
  n.output(n.conv(place == Place::after_add || all || twice ? sum : pair(sum, 0.03F), 8, {.kernel = 1}));
  return n;
}

class C09Bottleneck : public ::testing::TestWithParam<Place> {};

TEST_P(C09Bottleneck, OneRegionAConvolution) {
  const bool rounds =
      GetParam() == Place::all || GetParam() == Place::after_add || GetParam() == Place::doubled;  // between Mul and Add
  const Facts f =
      same_as_counterpart([&](Form form) { return bottleneck(form, GetParam()); }, rounds ? Inner::rounding : Inner::none);
  EXPECT_EQ(f.difference, "");
  EXPECT_EQ(f.layers, 4) << f.listing;
  EXPECT_EQ(f.copies + f.loose + f.floats, 0) << f.listing;
}

INSTANTIATE_TEST_SUITE_P(Places, C09Bottleneck,
                         ::testing::Values(Place::inputs, Place::all, Place::not_before_add, Place::add_branch, Place::after_add,
                                           Place::doubled));

TEST(C09Bottleneck, PlansDifferOnlyInMeaning) {
  const auto hash = [](Place p) { return judge(bottleneck(Form::explicit_qdq, p)).hash; };
  EXPECT_EQ(hash(Place::not_before_add), hash(Place::add_branch)) << "the other branch is on that grid already";
  EXPECT_EQ(hash(Place::not_before_add), hash(Place::inputs));
  EXPECT_EQ(hash(Place::after_add), hash(Place::doubled)) << "a pair twice is a pair";
  EXPECT_NE(hash(Place::after_add), hash(Place::inputs)) << "a rounding between Mul and Add is one more";
  EXPECT_NE(hash(Place::all), hash(Place::after_add));
}

TEST(C09Bottleneck, ControlWithoutMergingPairs) {
  const Options held{.disabled = {"merge-view"}};
  EXPECT_NE(judge(bottleneck(Form::explicit_qdq, Place::doubled), held).hash,
            judge(bottleneck(Form::explicit_qdq, Place::after_add), held).hash);
}

// C14: conv + BatchNormalization + SiLU chains: nothing is float, and every region says why it is one.
Net bn_chain(Form form) {
  Net n(form, 25);
  ValueId x = n.input("x", {1, 8, 6, 6});
  for (int i = 0; i < 3; ++i) {
    const std::int64_t c = 16;
    const ValueId y = n.conv(n.pair(x, 0.03F), c);
    std::vector<float> a(16, 0.9F), b(16, 0.1F);
    const std::string tag = std::to_string(i);
    x = n.silu(n.op(Op::affine, {y, n.graph.add_constant(ir::Tensor::of<float>({c}, a), "bn_a" + tag),
                                 n.graph.add_constant(ir::Tensor::of<float>({c}, b), "bn_b" + tag)}));
  }
  n.output(n.conv(n.pair(x, 0.03F), 8, {.kernel = 1}));
  return n;
}

TEST(C14Chain, NoLayerFallsToFloat) {
  const Facts f = judge(bn_chain(Form::explicit_qdq));
  EXPECT_EQ(f.difference, "");
  EXPECT_EQ(f.layers, 4) << f.listing;
  EXPECT_EQ(f.copies + f.loose + f.floats, 0) << f.listing;
  for (const region::Region& r : f.plan.regions) EXPECT_FALSE(r.reasons.empty()) << r.name;
}

TEST(C14Chain, ControlAFloatLayerSaysWhy) {
  Net n(Form::explicit_qdq, 26);
  const ValueId y = n.silu(n.conv(n.pair(n.input("x", {1, 8, 6, 6}), 0.03F), 16));
  n.output(n.conv(y, 8));  // no pair: demanded in float
  const Facts f = judge(n);
  EXPECT_EQ(f.floats, 1) << f.listing;
  EXPECT_NE(f.listing.find("silu"), 0U);
  EXPECT_NE(f.listing.find("mul_"), std::string::npos) << "the reason names the tensor that has no range\n" << f.listing;
}

}  // namespace
}  // namespace octavo::cases
