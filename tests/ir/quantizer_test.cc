#include "ir/quantizer.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "base/half.h"

namespace octavo::ir {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

std::int32_t u8(float x, float scale, std::int32_t zp) {
  return quantize_one(x, scale, zp, 0, 255);
}
std::int32_t s8(float x, float scale, std::int32_t zp) {
  return quantize_one(x, scale, zp, -128, 127);
}

TEST(Quantize, RoundsHalfToEvenBeforeTheZeroPoint) {
  EXPECT_EQ(u8(0.5F, 1, 1), 1);  // rne(0.5) + 1; adding the zero point first would give 2
  EXPECT_EQ(u8(1.5F, 1, 1), 3);
  EXPECT_EQ(u8(2.5F, 1, 1), 3);
  EXPECT_EQ(s8(-0.5F, 1, 0), 0);
  EXPECT_EQ(s8(-1.5F, 1, 0), -2);
  EXPECT_EQ(s8(-2.5F, 1, 3), 1);
}

TEST(Quantize, SaturatesAtBothEnds) {
  for (const std::int32_t zp : {0, 1, 127, 128, 255}) {
    EXPECT_EQ(u8(1e30F, 1, zp), 255);
    EXPECT_EQ(u8(-1e30F, 1, zp), 0);
    EXPECT_EQ(u8(kInf, 0.1F, zp), 255);
    EXPECT_EQ(u8(-kInf, 0.1F, zp), 0);
    EXPECT_EQ(u8(kNan, 0.1F, zp), zp);
  }
  for (const std::int32_t zp : {-128, -1, 0, 127}) {
    EXPECT_EQ(s8(3e38F, 1e-30F, zp), 127);  // the quotient overflows
    EXPECT_EQ(s8(-3e38F, 1e-30F, zp), -128);
    EXPECT_EQ(s8(kNan, 1, zp), zp);
  }
  constexpr auto kMin = std::numeric_limits<std::int32_t>::min(), kMax = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(quantize_one(1e20F, 1, 0, kMin, kMax), kMax);  // 2^31 - 1 is no float: the clamp must not round up to 2^31
  EXPECT_EQ(quantize_one(-1e20F, 1, 0, kMin, kMax), kMin);
}

TEST(Quantize, DividesRatherThanMultiplies) {
  // x / s is 2.5 exactly, to even 2; x * (1 / s) is above 2.5 for some s: those s exist, and the quotient decides.
  std::mt19937 random(7);
  int differ = 0;
  for (int i = 0; i < 20000; ++i) {
    const float s = std::ldexp(1 + static_cast<float>(random() % (1U << 23)) * 0x1p-23F, -5);
    const float x = s * 2.5F;
    const float quotient = x / s;
    EXPECT_EQ(s8(x, s, 0), static_cast<std::int32_t>(std::nearbyint(quotient)));
    differ += quotient != x * (1 / s);
  }
  EXPECT_GT(differ, 100);
}

TEST(Quantize, DenormalScalesStillDivide) {
  EXPECT_EQ(u8(kDenormal * 200, kDenormal, 3), 203);
  EXPECT_EQ(dequantize_one(203, kDenormal, 3), kDenormal * 200);
  const Quantizer q = per_tensor(DType::u8, kDenormal, 17);
  EXPECT_TRUE(fixes(q, q));
}

TEST(Quantize, ArithmeticTypeRoundsTheQuotientAndTheProduct) {
  const float scale = f16_to_f32(f32_to_f16(0.1F));
  for (int code = -128; code <= 127; ++code) {
    const float x = dequantize_one(code, scale, 0, DType::f16);
    EXPECT_EQ(f16_to_f32(f32_to_f16(x)), x);
  }
  EXPECT_EQ(round_to(DType::bf16, 1.00390625F), 1.0F);
  EXPECT_EQ(round_to(DType::f32, 1.00390625F), 1.00390625F);
}

TEST(QuantizerText, ReadsBackExactly) {
  std::mt19937 random(11);
  for (int i = 0; i < 5000; ++i) {
    Quantizer q;
    q.type = std::array{DType::u8, DType::s8, DType::s32, DType::s16, DType::u16}[random() % 5];
    q.arith = std::array{DType::f32, DType::f16, DType::bf16}[random() % 3];
    const bool per_axis = random() % 2 == 0;
    const std::size_t n = per_axis ? random() % 5 + 1 : 1;
    q.axis = per_axis ? static_cast<int>(random() % 4) : -1;
    q.scale.clear();
    q.zero_point.clear();
    for (std::size_t k = 0; k < n; ++k) {
      q.scale.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random() % 0x7f800000U)));
      q.zero_point.push_back(static_cast<std::int32_t>(random() % 256) - 128);
    }
    const auto back = parse_quantizer(to_string(q));
    ASSERT_TRUE(back) << to_string(q);
    EXPECT_EQ(*back, q) << to_string(q);
  }
  EXPECT_EQ(to_string(per_tensor(DType::u8, 0.02F, 128)), "u8(0.02,128)");
  EXPECT_EQ(to_string(Quantizer{DType::s8, {0.1F, 0.2F}, {0, 0}, 0, DType::f16}), "s8[axis=0](0.1,0.2;0,0)@f16");
}

TEST(QuantizerText, RefusesEverythingElse) {
  for (const char* text :
       {"", "u8", "u8()", "u8(1)", "u8(1,2,3)", "u8(1,2", "u8(1,2)x", "u8(1,2)@", "u8(1,2)@u8", "f32(1,2)", "q8(1,2)",
        "u8[axis=0](1,2)", "u8[axis=x](1;2)", "u8[axis=0](1;)", "u8(1,2)@f16 ", "u8(a,2)", "u8(1,2.5)", "u8[axis=0](1,;2)"}) {
    EXPECT_FALSE(parse_quantizer(text)) << text;
  }
}

TEST(QuantizerSpelling, S8AndU8HoldTheSameValues) {
  for (int zp = -128; zp <= 127; ++zp) {
    const Quantizer a = per_tensor(DType::s8, 0.037F, zp), b = as_u8(a);
    EXPECT_EQ(b.type, DType::u8);
    EXPECT_EQ(as_s8(b), a);
    for (int code = -128; code <= 127; ++code)
      EXPECT_EQ(dequantize_one(code, 0.037F, a.zero_point[0]), dequantize_one(code + 128, 0.037F, b.zero_point[0]));
    for (const float x : {-5.0F, -0.0185F, 0.0F, 0.0185F, 0.0555F, 3.0F, kInf, kNan})
      EXPECT_EQ(view_one(a, x), view_one(b, x)) << x << " zp " << zp;
  }
  const Quantizer bias = per_tensor(DType::s32, 0.1F);
  EXPECT_EQ(as_u8(bias), bias);
  EXPECT_EQ(as_s8(bias), bias);
}

TEST(QuantizerSpelling, EqualEntriesCollapse) {
  EXPECT_EQ(collapse_axis({DType::s8, {0.5F, 0.5F}, {1, 1}, 2, DType::f32}), per_tensor(DType::s8, 0.5F, 1));
  const Quantizer scales{DType::s8, {0.5F, 0.25F}, {1, 1}, 2, DType::f32}, zeros{DType::s8, {0.5F, 0.5F}, {1, 0}, 2, DType::f32};
  EXPECT_EQ(collapse_axis(scales), scales);
  EXPECT_EQ(collapse_axis(zeros), zeros);
}

/// What `fixes` claims, decided on values between, on and beyond the codes.
bool fixes_by_values(const Quantizer& q2, const Quantizer& q1, std::mt19937& random) {
  for (int i = 0; i < 2000; ++i) {
    const float steps = static_cast<float>(static_cast<int>(random() % 4096)) / 8 - 256;
    const float y = view_one(q1, steps * q1.scale[0]);
    if (view_one(q2, y) != y) return false;
  }
  return true;
}

TEST(Fixes, AgreesWithBruteForce) {
  std::mt19937 random(13);
  int yes = 0, no = 0;
  for (int i = 0; i < 1500; ++i) {
    const float s1 = std::ldexp(1 + static_cast<float>(random() % 1024) / 1024, static_cast<int>(random() % 5) - 6);
    const float factors[] = {1, 1, 0.5F, 0.25F, 2, 1.0000001F, 0.3F};
    const DType types[] = {DType::u8, DType::s8};
    const Quantizer q1 = per_tensor(types[random() % 2], s1, static_cast<std::int32_t>(random() % 128));
    Quantizer q2 = per_tensor(types[random() % 2], s1 * factors[random() % 7], static_cast<std::int32_t>(random() % 128));
    if (random() % 2 == 0) q2.zero_point[0] = q1.zero_point[0];
    const bool claimed = fixes(q2, q1);
    EXPECT_EQ(claimed, fixes_by_values(q2, q1, random)) << to_string(q2) << " after " << to_string(q1);
    (claimed ? yes : no)++;
  }
  EXPECT_GT(yes, 100);
  EXPECT_GT(no, 100);
}

TEST(Fixes, KnownCases) {
  const Quantizer q = per_tensor(DType::s8, 0.1F, -5);
  EXPECT_TRUE(fixes(q, q));
  EXPECT_TRUE(fixes(as_u8(q), q));
  EXPECT_TRUE(fixes(q, as_u8(q)));
  EXPECT_FALSE(fixes(per_tensor(DType::s8, 0.1F, -4), q));   // one code is cut off
  EXPECT_FALSE(fixes(per_tensor(DType::s8, 0.05F, -5), q));  // finer, but half the range
  EXPECT_TRUE(fixes(per_tensor(DType::s16, 0.1F, 0), q));
  EXPECT_FALSE(fixes(q, per_tensor(DType::s16, 0.1F, 0)));
  EXPECT_FALSE(fixes(per_tensor(DType::s32, 0.1F), q)) << "s32 is never enumerated";
  const Quantizer two{DType::s8, {0.1F, 0.2F}, {0, 0}, 0, DType::f32}, other_axis{DType::s8, {0.1F, 0.2F}, {0, 0}, 1, DType::f32};
  EXPECT_TRUE(fixes(two, two));
  EXPECT_FALSE(fixes(two, other_axis));
  EXPECT_FALSE(fixes(per_tensor(DType::s8, 0.1F), two));
  EXPECT_TRUE(fixes({DType::s16, {0.1F, 0.1F}, {0, 0}, 0, DType::f32}, per_tensor(DType::s8, 0.1F)));
}

/// Equal parameters suffice in f32; in bf16 the product may round across to the next code.
TEST(Fixes, EqualParametersMayFailInBf16) {
  std::mt19937 random(17);
  int failures = 0;
  for (int i = 0; i < 300; ++i) {
    Quantizer q = per_tensor(DType::s8, bf16_to_f32(f32_to_bf16(0.01F + static_cast<float>(random() % 1000) / 1000)));
    EXPECT_TRUE(fixes(q, q)) << to_string(q);
    q.arith = DType::bf16;
    failures += !fixes(q, q);
  }
  EXPECT_GT(failures, 30);
}

TEST(Quantizer, ValuesTellTheirCodesUnlessRoundingMergesThem) {
  EXPECT_TRUE(injective(per_tensor(DType::u8, 0.0371F, 77)));
  EXPECT_TRUE(injective(per_tensor(DType::s8, 1e-20F, 0)));
  Quantizer coarse = per_tensor(DType::u8, 0.0371F, 0);
  coarse.arith = DType::bf16;
  int merged = 0;  // counted the slow way: all pairs of codes
  for (int a = 0; a < 256; ++a) {
    for (int b = a + 1; b < 256; ++b)
      merged += dequantize_one(a, 0.0371F, 0, DType::bf16) == dequantize_one(b, 0.0371F, 0, DType::bf16);
  }
  EXPECT_GT(merged, 0);
  EXPECT_FALSE(injective(coarse));
  coarse.scale = {0.5F};
  EXPECT_TRUE(injective(coarse));  // every product is exact
}

}  // namespace
}  // namespace octavo::ir
