// Plans judged without any kernel: the reference provider runs them, and the outputs must equal the graph evaluator's bit for bit.
#include "plan/plan.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "reference/evaluate.h"
#include "reference/oracle_provider.h"
#include "report/sentences.h"
#include "support/feeds.h"
#include "support/run_plan.h"

namespace octavo {
namespace {

struct Case {
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
  const char* name;
  const char* text;
  int regions;  ///< expected number of regions
  int copies;   ///< of which regions that only move data
};

// Weights and biases come from seeds; scales are chosen so that codes spread over the range.
const Case kCases[] = {
    {"conv_relu_requantize", R"(
graph "g"
x = input : f32[2,5,7,6]
w = constant s8[9,5,3,3] q=s8[axis=0](0.01,0.02,0.03,0.01,0.02,0.03,0.01,0.02,0.03;0,0,0,0,0,0,0,0,0) seed:1
b = constant f32[9] seed:2
q = view x q=u8(0.03,128) from {"q"}
y = conv q w b {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[2,1]} from {"conv"}
r = relu y from {"relu"}
v = view r q=u8(0.05,0) from {"v"}
w2 = constant s8[4,9,1,1] q=s8(0.02,0) seed:3
z = conv v w2 {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]} from {"conv2"}
output z
)",
     4, 1},
    {"residual_unequal_scales", R"(
graph "g"
x = input : f32[1,4,5,5]
w = constant s8[4,4,3,3] q=s8(0.02,0) seed:1
q = view x q=u8(0.03,100) from {"q"}
y = conv q w {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"conv"}
v = view y q=s8(0.05,3) from {"v"}
a = add v q from {"add"}
r = relu a from {"relu"}
o = view r q=u8(0.04,0) from {"o"}
w2 = constant s8[4,4,1,1] q=s8(0.02,0) seed:3
z = conv o w2 {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]} from {"conv2"}
s = add z r from {"add2"}
output s
)",
     4, 1},
    {"concat_split_resize", R"(
graph "g"
x = input : f32[1,3,4,4]
q = view x q=u8(0.03,128) from {"q"}
w = constant s8[8,3,3,3] q=s8(0.02,0) seed:1
y = conv q w {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"conv"}
v = view y q=u8(0.05,128) from {"v"}
a = slice v {starts=[0,0,0,0], ends=[1,4,4,4], steps=[1,1,1,1]} from {"split"}
b = slice v {starts=[0,4,0,0], ends=[1,8,4,4], steps=[1,1,1,1]} from {"split"}
w2 = constant s8[6,4,3,3] q=s8(0.02,0) seed:3
c = conv b w2 {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"conv2"}
cv = view c q=u8(0.05,128) from {"cv"}
m = max_pool a {kernel=[3,3], strides=[1,1], pads=[1,1,1,1], dilations=[1,1]} from {"pool"}
k = concat a cv m v {axis=1} from {"cat"}
w3 = constant s8[5,22,1,1] q=s8(0.02,0) seed:4
z = conv k w3 {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]} from {"conv3"}
output z
output k as "k"
)",
     0, -1},
    {"deconv_silu", R"(
graph "g"
x = input : f32[1,4,3,5]
q = view x q=u8(0.03,128) from {"q"}
w = constant s8[4,3,3,2] q=s8[axis=1](0.01,0.02,0.03;0,0,0) seed:1
b = constant f32[3] seed:5
y = conv_transpose q w b {dilations=[1,1], group=1, pads=[1,0,0,1], strides=[2,3], output_padding=[1,0]} from {"deconv"}
v = view y q=u8(0.02,128) from {"v"}
s = sigmoid v from {"sigmoid"}
sv = view s q=u8(0.00390625,0) from {"sv"}
m = mul v sv from {"mul"}
o = view m q=u8(0.02,20) from {"o"}
w2 = constant s8[4,3,1,1] q=s8(0.02,0) seed:3
z = conv o w2 {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]} from {"conv2"}
output z
)",
     4, 1},
    {"classifier_tail", R"(
graph "g"
x = input : f32[2,8,3,3]
q = view x q=u8(0.03,128) from {"q"}
g1 = avg_pool q {kernel=[3,3], strides=[1,1], pads=[0,0,0,0], count_include_pad=0} from {"gap"}
f = reshape g1 {shape=[2,8]} from {"flatten"}
v = view f q=u8(0.01,128) from {"v"}
w = constant s8[8,10] q=s8[axis=1](0.01,0.02,0.03,0.01,0.02,0.03,0.01,0.02,0.03,0.04;0,0,0,0,0,0,0,0,0,0) seed:2
b = constant f32[10] seed:4
y = gemm v w b from {"fc"}
s = softmax y {axis=1} from {"softmax"}
output s
output y as "logits"
)",
     0, -1},
    {"avg_pool_borders", R"(
graph "g"
x = input : f32[1,3,5,4]
q = view x q=u8(0.03,77) from {"q"}
p = avg_pool q {kernel=[3,3], strides=[2,2], pads=[1,1,1,1], count_include_pad=0} from {"avg"}
v = view p q=u8(0.02,77) from {"v"}
m = max_pool v {kernel=[2,2], strides=[1,1], pads=[0,0,0,0], dilations=[1,1]} from {"max"}
output m
)",
     0, -1},
    {"flatten_of_an_image_and_head", R"(
graph "g"
x = input : f32[1,3,4,4]
q = view x q=u8(0.03,128) from {"q"}
w = constant s8[6,3,3,3] q=s8(0.02,0) seed:1
y = conv q w {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]} from {"conv"}
v = view y q=u8(0.05,128) from {"v"}
f = reshape v {shape=[1,96]} from {"flatten"}
w2 = constant s8[96,5] q=s8(0.02,0) seed:3
z = gemm f w2 from {"fc"}
h = reshape y {shape=[1,6,16]} from {"r"}
t = transpose h {perm=[0,2,1]} from {"t"}
h2 = reshape v {shape=[1,6,16]} from {"r2"}
t2 = transpose h2 {perm=[0,2,1]} from {"t2"}
c = concat t t2 {axis=1} from {"c"}
output z
output c
output v as "image"
)",
     0, -1},
    {"groups_and_squeeze_excite", R"(
graph "g"
x = input : f32[1,8,6,6]
q = view x q=u8(0.03,128) from {"q"}
w = constant s8[8,1,3,3] q=s8[axis=0](0.01,0.02,0.03,0.01,0.02,0.03,0.01,0.02;0,0,0,0,0,0,0,0) seed:1
d = conv q w {dilations=[1,1], group=8, pads=[1,1,1,1], strides=[1,1]} from {"dw"}
h = hard_swish d from {"hs"}
v = view h q=u8(0.03,20) from {"v"}
a = avg_pool v {kernel=[6,6], strides=[1,1], pads=[0,0,0,0], count_include_pad=0} from {"gap"}
av = view a q=u8(0.01,3) from {"av"}
w1 = constant s8[8,8,1,1] q=s8(0.02,0) seed:3
e = conv av w1 {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]} from {"se"}
s = sigmoid e from {"sig"}
m = mul v s from {"mul"}
mv = view m q=u8(0.02,20) from {"mv"}
w2 = constant s8[4,4,1,1] q=s8(0.02,0) seed:7
z = conv mv w2 {dilations=[1,1], group=2, pads=[0,0,0,0], strides=[1,1]} from {"group"}
output z
)",
     0, -1},
};

// Weights that are network inputs: no packing, no integer form; ranks other than 4 stay as they are.
const Case kRunTimeWeights[] = {
    {"conv1d", R"(
graph "g"
x = input : f32[1,3,8]
w = input : f32[4,3,3]
b = input : f32[4]
y = conv x w b {dilations=[1], group=1, pads=[1,1], strides=[1]} from {"conv"}
r = relu y from {"relu"}
output r
)",
     3, 2},
    {"gemm", R"(
graph "g"
x = input : f32[3,8]
w = input : f32[8,5]
b = input : f32[5]
y = gemm x w b from {"fc"}
output y
)",
     1, 0},
};

class PlanCase : public ::testing::TestWithParam<Case> {};

TEST_P(PlanCase, EqualsTheReference) {
  const Case& c = GetParam();
  auto graph = ir::parse(c.text);
  ASSERT_TRUE(graph) << graph.error().message;
  const std::vector<const region::Provider*> providers{&reference::oracle_provider()};
  auto planned = plan::make_plan(*graph, providers, {});
  ASSERT_TRUE(planned) << planned.error().message;
  const Status sound = region::verify(planned->plan);
  ASSERT_TRUE(sound) << sound.error().message;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const auto feeds = testing::seeded_feeds(*graph, seed);
    const auto want = reference::evaluate(*graph, feeds);
    ASSERT_TRUE(want) << want.error().message;
    const auto got = testing::run_plan(planned->plan, providers, feeds);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(testing::first_difference(*want, *got), "") << c.name << " seed " << seed;
  }
  int copies = 0;
  std::string listing;
  for (const region::Region& r : planned->plan.regions) {
    copies += r.precision == region::Work::move;
    listing += r.name + " [" + to_string(r.precision) + "] " + report::sentences(r.reasons) + "\n";
  }
  if (c.regions > 0) {
    EXPECT_EQ(static_cast<int>(planned->plan.regions.size()), c.regions) << listing;
  }
  if (c.copies >= 0) {
    EXPECT_EQ(copies, c.copies) << listing;
  }
}

INSTANTIATE_TEST_SUITE_P(Plan, PlanCase, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(RunTimeWeights, PlanCase, ::testing::ValuesIn(kRunTimeWeights),
                         [](const auto& info) { return std::string(info.param.name); });

// Attention as exporters spell it out: the heads are split off and joined by Transpose and Reshape around two products and a Softmax.
constexpr const char* kAttention = R"(
graph "g"
q = input : f32[1,5,12]
k = input : f32[1,5,12]
v = input : f32[1,5,12]
q4 = reshape q {shape=[1,5,3,4]} from {"q4"}
k4 = reshape k {shape=[1,5,3,4]} from {"k4"}
v4 = reshape v {shape=[1,5,3,4]} from {"v4"}
qh = transpose q4 {perm=[0,2,1,3]} from {"qh"}
kh = transpose k4 {perm=[0,2,3,1]} from {"kh"}
vh = transpose v4 {perm=[0,2,1,3]} from {"vh"}
s = matmul qh kh from {"scores"}
two = constant f32[1] seed:7
d = div s two from {"div"}
p = softmax d {axis=3} from {"softmax"}
o = matmul p vh from {"heads"}
t = transpose o {perm=[0,2,1,3]} from {"join"}
y = reshape t {shape=[1,5,12]} from {"y"}
r = relu y from {"relu"}
output r
)";

/// The elements of a row of scores lie side by side, where an image of the same rank would have its channels; heads are stored joined.
TEST(Layout, ProductsOfMatricesKeepTheirRows) {
  auto graph = ir::parse(kAttention);
  ASSERT_TRUE(graph) << graph.error().message;
  const std::vector<const region::Provider*> providers{&reference::oracle_provider()};
  plan::PlanOptions apart;
  apart.disabled = {"attention"};
  auto planned = plan::make_plan(*graph, providers, apart);
  ASSERT_TRUE(planned) << planned.error().message;
  std::map<std::string, std::vector<std::int64_t>> stored;
  for (const region::Region& r : planned->plan.regions) {
    EXPECT_NE(r.precision, region::Work::move) << r.name;
    for (const region::Stage& s : r.stages) stored[std::string(ir::name_of(s.anchor.op))] = s.stores.at(0).strides;
    if (r.stages[0].anchor.op == ir::Op::matmul && r.name.find("heads") != std::string::npos) {
      EXPECT_EQ(r.stages[0].stores.at(0).strides, (std::vector<std::int64_t>{60, 4, 12, 1})) << "[1,5,12] of [1,3,5,4]";
    }
  }
  EXPECT_EQ(stored.at("softmax"), (std::vector<std::int64_t>{75, 25, 5, 1}));
  const auto feeds = testing::seeded_feeds(*graph, 1);
  const auto want = reference::evaluate(*graph, feeds);
  const auto got = testing::run_plan(planned->plan, providers, feeds);
  ASSERT_TRUE(want && got);
  EXPECT_EQ(testing::first_difference(*want, *got), "");
}

// Channels of a convolution's result lie side by side, and so do those of constants that an epilogue reads with it, broadcast or not.
TEST(Layout, ConstantsLieAsTheResultDoes) {
  auto graph = ir::parse(R"(
graph "g"
x = input : f32[2,3,4,5]
w = constant f32[6,3,1,1] seed:1
a = constant f32[1,6,4,5] seed:2
b = constant f32[2,6,1,5] seed:3
c = constant f32[6,1,1] seed:4
y = conv x w {dilations=[1,1], group=1, pads=[0,0,0,0], strides=[1,1]} from {"conv"}
s = add y a from {"add"}
t = mul s b from {"mul"}
u = add t c from {"bias"}
output t
output u
)");
  ASSERT_TRUE(graph) << graph.error().message;
  const std::vector<const region::Provider*> providers{&reference::oracle_provider()};
  auto planned = plan::make_plan(*graph, providers, {});
  ASSERT_TRUE(planned) << planned.error().message;
  std::set<std::vector<std::int64_t>> strides;
  for (const region::Region& r : planned->plan.regions) {
    for (const region::Operand& o : r.stages[0].operands) {
      if (planned->plan.buffers[static_cast<std::size_t>(o.ref.buffer)].kind == region::BufferKind::constant)
        strides.insert(o.ref.strides);
    }
  }
  EXPECT_TRUE(strides.contains({0, 1, 30, 6})) << "[1,6,4,5] of [2,6,4,5]";
  EXPECT_TRUE(strides.contains({30, 1, 0, 6})) << "[2,6,1,5] of [2,6,4,5]";
  const auto feeds = testing::seeded_feeds(*graph, 1);
  const auto want = reference::evaluate(*graph, feeds);
  const auto got = testing::run_plan(planned->plan, providers, feeds);
  ASSERT_TRUE(want && got);
  EXPECT_EQ(testing::first_difference(*want, *got), "");
}

}  // namespace
}  // namespace octavo
