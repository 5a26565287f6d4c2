// ir::find_grids against the reference evaluator: every element of a value with a grid is bit for bit the value of one of its
// codes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "ir/grid.h"
#include "ir/text.h"
#include "reference/evaluate.h"

namespace octavo {
namespace {

constexpr const char* kOps[] = {"relu {0}",
                                "clip {0} {{min=0, max=3}}",
                                "clip {0} {{min=-0.5}}",
                                "max_pool {0} {{kernel=[3,3], pads=[1,1,1,1]}}",
                                "max {0} {1}",
                                "min {0} {1}",
                                "where k {0} {1}",
                                "pad {0} {{pads=[0,0,1,0,0,0,0,1], value=0}}",
                                "pad {0} {{pads=[0,0,1,0,0,0,0,1], value=0.5}}",
                                "pad {0} {{pads=[0,0,1,0,0,0,0,1], mode=\"reflect\"}}",
                                "concat {0} {1} {{axis=1}}",
                                "concat {0} {1} {{axis=2}}",
                                "reduce_max {0} {{axes=[2]}}",
                                "reduce_min {0} {{axes=[2,3]}}",
                                "transpose {0} {{perm=[0,1,3,2]}}",
                                "transpose {0} {{perm=[0,2,1,3]}}",
                                "gather {0} i {{axis=1}}",
                                "tile {0} {{repeats=[1,2,1,1]}}",
                                "resize_nearest {0} {{index2=[0,0,1]}}",
                                "depth_to_space {0} {{blocksize=2}}",
                                "space_to_depth {0} {{blocksize=2}}",
                                "neg {0}",
                                "add {0} {1}",
                                "avg_pool {0} {{kernel=[1,1]}}"};

TEST(GridValues, EveryElementIsACode) {
  int on_grid = 0, per_axis = 0;
  for (unsigned seed = 1; seed <= 400; ++seed) {
    std::mt19937 random(seed);
    // Zero points at the ends and scales in halves make accidents such as equal grids and on-grid bounds common.
    const char* quantizers[] = {"u8(0.5,0)", "u8(0.5,128)", "s8(0.5,0)", "s8(0.1,-128)", "u8[axis=1](0.5,0.25,0.1,1;0,3,128,255)"};
    std::string text = "x = input : f32[1,4,4,4]\nk = input : bool[1,1,4,4]\ni = constant s64[3] (0,-1,0)\n";
    std::vector<std::string> values;
    for (int v = 0; v < 3; ++v) {
      text += fmt::format("q{} = view x q={}\n", v, quantizers[random() % 5]);
      values.push_back(fmt::format("q{}", v));
    }
    for (int step = 0; step < 6; ++step) {
      const std::string line = fmt::format("n{} = {}\n", step,
                                           fmt::format(fmt::runtime(kOps[random() % std::size(kOps)]),
                                                       values[random() % values.size()], values[random() % values.size()]));
      if (!ir::parse(text + line)) continue;  // shapes that do not meet
      text += line;
      values.push_back(fmt::format("n{}", step));
    }
    for (const std::string& v : values) text += fmt::format("output {}\n", v);
    const auto g = ir::parse(text);
    ASSERT_TRUE(g) << g.error().message;

    ir::Tensor x(ir::DType::f32, {1, 4, 4, 4}), k(ir::DType::boolean, {1, 1, 4, 4});
    for (float& f : x.mutable_data<float>())
      f = static_cast<float>(static_cast<int>(random() % 4001) - 2000) / (random() % 2 ? 16 : 200);
    for (auto& b : k.mutable_data<std::uint8_t>()) b = random() % 2;
    const auto results = reference::evaluate(*g, {x, k});
    ASSERT_TRUE(results) << results.error().message << "\n" << text;

    const ir::Grids grids = ir::find_grids(*g);
    for (std::size_t o = 0; o < results->size(); ++o) {
      const ir::Quantizer* q = grids.get(g->outputs[o]);
      if (q == nullptr) continue;
      (q->per_tensor() ? on_grid : per_axis)++;
      const ir::Tensor& t = (*results)[o];
      const ir::Shape strides = ir::dense_strides(t.shape());
      for (std::int64_t e = 0; e < t.size(); ++e) {
        const float value = t.data<float>()[static_cast<std::size_t>(e)];
        const std::int64_t c =
            q->per_tensor() ? 0 : e / strides[static_cast<std::size_t>(q->axis)] % t.shape()[static_cast<std::size_t>(q->axis)];
        ASSERT_EQ(std::bit_cast<std::uint32_t>(ir::view_one(*q, value, c)), std::bit_cast<std::uint32_t>(value))
            << "seed " << seed << ", output " << o << " element " << e << " on " << ir::to_string(*q) << "\n"
            << text;
      }
    }
  }
  EXPECT_GT(on_grid, 1500);
  EXPECT_GT(per_axis, 300);
}

}  // namespace
}  // namespace octavo
