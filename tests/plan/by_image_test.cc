// The network of one image: in, out, and what mixes images.
#include "plan/search/by_image.h"

#include <gtest/gtest.h>

#include "base/causes/plan_candidates.h"
#include "ir/text.h"
#include "ir/verify.h"
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

ir::Tensor part(const ir::Tensor& whole, std::int64_t image, std::int64_t images) {
  ir::Shape shape = whole.shape();
  shape[0] /= images;
  ir::Tensor out(whole.dtype(), shape);
  const auto bytes = out.bytes().size();
  std::copy_n(whole.bytes().begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(image) * bytes), bytes,
              out.mutable_bytes().begin());
  return out;
}

constexpr const char* kNetwork = R"(
graph "g"
x = input : f32[3,4,5,5]
v = view x q=s8[axis=0](0.03,0.03,0.03;0,0,0)
w = constant s8[6,4,3,3] q=s8[axis=0](0.01,0.02,0.03,0.01,0.02,0.02;0,0,0,0,0,0) seed:1
bias = constant f32[6] seed:2
c = conv v w bias {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]}
r = relu c
k = constant f32[1,6,1,1] seed:3
m = mul r k
p = max_pool m {dilations=[1,1], kernel=[2,2], pads=[0,0,0,0], strides=[1,1]}
s = slice p {ends=[3,6,3,4], starts=[0,0,1,0], steps=[1,1,1,1]}
cat = concat s s {axis=2}
t = transpose cat {perm=[0,2,3,1]}
f = reshape t {shape=[3,96]}
u = constant f32[96,7] seed:4
d = constant f32[7] seed:5
y = gemm f u d
z = softmax y {axis=1}
output z
output p
)";

TEST(OneImage, EveryPartIsTheSameFunction) {
  const ir::Graph whole = parsed(kNetwork);
  const auto one = plan::one_image(whole);
  ASSERT_TRUE(one) << report::sentence(one.error());
  ASSERT_TRUE(ir::verify(*one)) << ir::verify(*one).error().message;
  EXPECT_EQ(one->type(one->inputs[0]).shape, (ir::Shape{1, 4, 5, 5}));
  EXPECT_EQ(one->type(one->outputs[0]).shape, (ir::Shape{1, 7}));
  const auto feeds = testing::seeded_feeds(whole, 9);
  const auto want = reference::evaluate(whole, feeds);
  ASSERT_TRUE(want);
  for (std::int64_t i = 0; i < 3; ++i) {
    const auto got = reference::evaluate(*one, {part(feeds[0], i, 3)});
    ASSERT_TRUE(got) << got.error().message;
    for (std::size_t k = 0; k < 2; ++k)
      EXPECT_TRUE(std::ranges::equal((*got)[k].bytes(), part((*want)[k], i, 3).bytes())) << i << " " << k;
  }
}

TEST(OneImage, WhatMixesImagesIsRefusedByName) {
  struct Case {
    std::string node, why;
  };
  const Case cases[] = {
      {"y = reduce_mean x {axes=[0], keepdims=1}", "it reduces over the batch dimension"},
      {"y = reduce_max x {axes=[0,1], keepdims=0}", "it reduces over the batch dimension"},
      {"y = softmax x {axis=0}", "it computes along the batch dimension"},
      {"y = concat x x {axis=0}", "it computes along the batch dimension"},
      {"y = transpose x {perm=[1,0,2,3]}", "it moves the batch to another dimension"},
      {"y = reshape x {shape=[12,5,5]}", "it merges the batch with another dimension, or splits it"},
      {"y = slice x {ends=[2,4,5,5], starts=[0,0,0,0], steps=[1,1,1,1]}", "it selects some images of the batch"},
      {"y = slice x {ends=[-1,4,5,5], starts=[2,0,0,0], steps=[-1,1,1,1]}", "it selects some images of the batch"},
      {"y = pad x {mode=\"constant\", pads=[1,0,0,0,0,0,0,0], value=0.0}", "it adds images"},
      {"y = tile x {repeats=[2,1,1,1]}", "it repeats images"},
      {"k = constant f32[3,1,1,1] seed:1\ny = add x k", "operand \"k\" is neither the same for all images nor split by image"},
      {"k = constant s64[3] seed:1\ni = constant s64[1] (0)\ny = gather x i {axis=0}", "it computes along the batch dimension"},
      {"k = constant f32[3,4,5,5] seed:1\ny = concat x k {axis=1}", "one of its parts does not depend on the inputs"},
      {"y = view x q=s8[axis=0](0.1,0.2,0.3;0,0,0)", "it is quantized with a different scale for each image"},
  };
  for (const Case& c : cases) {
    auto g = ir::parse("graph \"g\"\nx = input : f32[3,4,5,5]\n" + c.node + "\noutput y\n");
    ASSERT_TRUE(g) << c.node << ": " << g.error().message;
    const auto one = plan::one_image(*g);
    ASSERT_FALSE(one) << c.node;
    EXPECT_NE(report::sentence(one.error()).find(c.why), std::string::npos) << c.node << ": " << report::sentence(one.error());
  }
  const auto broadcast = plan::one_image(
      parsed("graph \"g\"\nx = input : f32[3,3,5]\nm = reduce_mean x {axes=[1], keepdims=0}\ny = add x m\noutput y\n"));
  ASSERT_FALSE(broadcast) << "an image's mean would be added to a channel of all";
  EXPECT_EQ(broadcast.error().cause, cause::batch_operand_mixed);
  EXPECT_FALSE(plan::one_image(parsed("graph \"g\"\nx = input : f32[1,4]\ny = relu x\noutput y\n"))) << "one image";
  EXPECT_FALSE(
      plan::one_image(parsed("graph \"g\"\nx = input : f32[2,4]\nz = input : f32[3,4]\ny = relu x\noutput y\noutput z\n")));
}

}  // namespace
}  // namespace octavo
