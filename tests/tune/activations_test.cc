// What kernels read while they are timed.
#include "tune/activations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"

namespace octavo::testing {
namespace {

TEST(Activations, NumbersOf16BitsAreNeitherZeroNorLarge) {
  constexpr std::size_t kCount = 1003;  // the last word is cut
  for (const ir::DType type : {ir::DType::f16, ir::DType::bf16}) {
    std::vector<std::uint16_t> bits(kCount);
    tune::fill_activations(reinterpret_cast<std::byte*>(bits.data()), kCount * 2, type);
    std::vector<float> values;
    for (const std::uint16_t b : bits) values.push_back(type == ir::DType::f16 ? f16_to_f32(b) : bf16_to_f32(b));
    for (const float v : values) {
      EXPECT_GE(std::abs(v), 0.0625F);
      EXPECT_LT(std::abs(v), 1.0F);
    }
    const auto negative = std::count_if(values.begin(), values.end(), [](float v) { return v < 0; });
    EXPECT_GT(negative, 400);
    EXPECT_LT(negative, 600);
    std::sort(values.begin(), values.end());
    EXPECT_GT(std::unique(values.begin(), values.end()) - values.begin(), 250);
  }
}

TEST(Activations, IndicesAreLeftAlone) {
  std::vector<std::int64_t> indices(5, 7);
  tune::fill_activations(reinterpret_cast<std::byte*>(indices.data()), 40, ir::DType::s64);
  EXPECT_EQ(indices, std::vector<std::int64_t>(5, 7));
}

}  // namespace
}  // namespace octavo::testing
