#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>

namespace octavo {
namespace {

TEST(Half, EveryCodeComesBack) {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const auto h = static_cast<std::uint16_t>(code);
    const float f = f16_to_f32(h), b = bf16_to_f32(h);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(f)))) << code;
    } else {
      EXPECT_EQ(f32_to_f16(f), h) << code;
    }
    if (std::isnan(b)) {
      EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(b)))) << code;
    } else {
      EXPECT_EQ(f32_to_bf16(b), h) << code;
    }
  }
}

/// Between each two neighbours: a quarter of the way rounds down, three quarters up, the middle to the even code.
TEST(Half, RoundsToNearestEven) {
  for (std::uint16_t code = 0; code < 0x7bff; ++code) {
    const double lo = static_cast<double>(f16_to_f32(code)), hi = static_cast<double>(f16_to_f32(code + 1));
    EXPECT_EQ(f32_to_f16(static_cast<float>(lo + (hi - lo) * 0.25)), code);
    EXPECT_EQ(f32_to_f16(static_cast<float>(lo + (hi - lo) * 0.75)), code + 1);
    EXPECT_EQ(f32_to_f16(static_cast<float>(lo + (hi - lo) * 0.5)), code + (code & 1)) << code;
    EXPECT_EQ(f32_to_f16(-static_cast<float>(lo + (hi - lo) * 0.5)), 0x8000 + code + (code & 1)) << code;
  }
  EXPECT_EQ(f32_to_f16(65519.996F), 0x7bff);  // the last that is not infinity
  EXPECT_EQ(f32_to_f16(65520.0F), 0x7c00);
  EXPECT_EQ(f32_to_bf16(1.00390625F), 0x3f80);  // 1 + 2^-8: a tie, to even
  EXPECT_EQ(f32_to_bf16(1.01171875F), 0x3f82);  // 1 + 3 * 2^-8: a tie, to even
}

}  // namespace
}  // namespace octavo
