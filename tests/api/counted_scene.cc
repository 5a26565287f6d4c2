#include "api/counted_scene.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "ir/text.h"

namespace octavo::testing {

ir::Graph head() {
  std::string counting;
  for (std::int64_t i = 0; i < kRoom; ++i) counting += (i == 0 ? "" : ",") + std::to_string(i);
  auto g = ir::parse(R"(
graph "head"
x = input : f32[300,24]
image = input : f32[300,4,6,6]
keep = input : f32[300]
at, n = non_zero keep
r = gather x at {axis=0}
w = constant f32[24,40] seed:1
b = constant f32[40] seed:2
h = gemm r w b
a = relu h
u = constant f32[40,6] seed:3
y = gemm a u
s = softmax y {axis=1}
best = reduce_max s {axes=[1], keepdims=0}
least = constant f32[] (0.3)
good = greater best least
i = constant s64[300] ()" +
                     counting +
                     R"()
there = less i n
both = and good there
at2, n2 = non_zero both
z = gather s at2 {axis=0, counted=[0]}
q = gather image at {axis=0}
k = constant f32[8,4,3,3] seed:4
c = conv q k {dilations=[1,1], group=1, pads=[1,1,1,1], strides=[1,1]}
e = relu c
p = avg_pool e {count_include_pad=0, dilations=[1,1], kernel=[6,6], pads=[0,0,0,0], strides=[1,1]}
f = reshape p {shape=[300,8]}
zero = constant f32[] (0)
mask = constant s64[300,1] ()" +
                     counting +
                     R"()
here = less mask n
filled = where here f zero
total = reduce_sum filled {axes=[0], keepdims=0}
output z
output s
output total
output n2
output n
size 0 0 3
size 1 0 4
size -2 0 4
)");
  EXPECT_TRUE(g) << (g ? "" : g.error().message);
  return std::move(*g);
}

std::vector<ir::Tensor> feeds_of_any(const ir::Graph& g, std::uint64_t seed) {
  std::vector<ir::Tensor> feeds;
  std::uint32_t state = static_cast<std::uint32_t>(seed) * 2654435761U + 1;
  for (const ir::ValueId v : g.inputs) {
    ir::Tensor t(g.type(v));
    for (float& f : t.mutable_data<float>()) {
      state = state * 1664525U + 1013904223U;
      f = static_cast<float>(state >> 8U) / static_cast<float>(1U << 23U) - 1;
    }
    feeds.push_back(std::move(t));
  }
  return feeds;
}

std::vector<ir::Tensor> feeds_of(const ir::Graph& g, std::int64_t count, std::uint64_t seed) {
  std::vector<ir::Tensor> feeds = feeds_of_any(g, seed);
  auto keep = feeds[2].mutable_data<float>();
  for (std::int64_t i = 0; i < kRoom; ++i)  // as evenly as it goes
    keep[static_cast<std::size_t>(i)] = (i + 1) * count / kRoom > i * count / kRoom ? 1.0F : 0.0F;
  return feeds;
}

double difference(const std::vector<ir::Tensor>& a, const std::vector<ir::Tensor>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i].type() != b[i].type()) return INFINITY;
    for (std::int64_t k = 0; k < a[i].size(); ++k) {
      const double d = std::abs(a[i].at(k) - b[i].at(k)) / (1 + std::abs(b[i].at(k)));
      worst = std::max(worst, std::isnan(d) ? INFINITY : d);
    }
  }
  return worst;
}

}  // namespace octavo::testing
