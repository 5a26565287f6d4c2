#include "base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "base/half_arrays.h"

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

/// Arrays as one by one: around every value of 16 bits, NaN, infinity, subnormal numbers, and a length that is no multiple of blocks.
TEST(Half, ArraysAreRoundedAsNumbersAre) {
  std::vector<float> from;
  for (std::uint32_t code = 0; code < 65536; ++code) {
    for (const float v : {f16_to_f32(static_cast<std::uint16_t>(code)), bf16_to_f32(static_cast<std::uint16_t>(code))}) {
      const auto bits = std::bit_cast<std::uint32_t>(v);
      for (const std::uint32_t off : {0U, 1U, 0xfffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U})
        from.push_back(std::bit_cast<float>(bits + off));
    }
  }
  from.resize(from.size() - 5);
  std::vector<std::uint16_t> f16(from.size()), bf16(from.size());
  std::vector<float> near_f16(from.size()), near_bf16(from.size());
  f32_to_f16_all(from, f16), f32_to_bf16_all(from, bf16);
  round_to_f16_all(from, near_f16), round_to_bf16_all(from, near_bf16);
  const auto bits = [](float v) { return std::bit_cast<std::uint32_t>(v); };
  for (std::size_t i = 0; i < from.size(); ++i) {
    ASSERT_EQ(f16[i], f32_to_f16(from[i])) << std::hex << bits(from[i]);
    ASSERT_EQ(bf16[i], f32_to_bf16(from[i])) << std::hex << bits(from[i]);
    ASSERT_EQ(bits(near_f16[i]), bits(f16_to_f32(f16[i]))) << std::hex << bits(from[i]);
    ASSERT_EQ(bits(near_bf16[i]), bits(bf16_to_f32(bf16[i]))) << std::hex << bits(from[i]);
  }
}

}  // namespace
}  // namespace octavo
