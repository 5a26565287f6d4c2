// Histograms that do not depend on order, and the ranges that are chosen from them.
#include "quantize/ranges/ranges.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "quantize/data/histogram.h"

namespace octavo::quantize {
namespace {

std::vector<float> normal(std::size_t n, float deviation, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> out(n);
  for (float& x : out) {  // a sum of uniform numbers: the same on every machine, unlike std::normal_distribution
    double sum = 0;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) / 9007199254740992.0;
    x = static_cast<float>((sum - 6) * static_cast<double>(deviation));
  }
  return out;
}

TEST(Histogram, DoesNotDependOnOrderOrParts) {
  const std::vector<float> small = normal(1000, 0.01F, 1), large = normal(1000, 40.0F, 2);
  Histogram a, b, c;
  a.add(small);
  a.add(large);
  b.add(large);
  b.add(small);
  Histogram part;
  part.add(small);
  c.add(large);
  c.merge(part);
  for (const Histogram* other : {&b, &c}) {
    EXPECT_EQ(a.width(), other->width());
    EXPECT_EQ(a.count(), other->count());
    EXPECT_EQ(a.min(), other->min());
    EXPECT_EQ(a.max(), other->max());
    for (int k = 0; k < Histogram::kSide; ++k) {
      ASSERT_EQ(a.above(k), other->above(k)) << "bin " << k;
      ASSERT_EQ(a.below(k), other->below(k)) << "bin -" << k;
    }
  }
}

TEST(Histogram, HalfOfTheBinsLieWithinTheLargestMagnitude) {
  for (const float largest : {1e-30F, 0.7F, 1.0F, 127.0F, 3e38F}) {
    Histogram h;
    h.add(std::vector<float>{largest, -largest / 3});
    int last = 0;
    for (int k = 0; k < Histogram::kSide; ++k) last = h.above(k) > 0 ? k : last;
    EXPECT_GE(last, Histogram::kSide / 2) << largest;
    EXPECT_EQ(h.max(), largest);
  }
}

TEST(Histogram, NamesWhatIsNoNumber) {
  Histogram h;
  h.add(std::vector<float>{NAN, 1.0F, INFINITY, -INFINITY, -2.0F});
  EXPECT_EQ(h.not_a_number(), 1U);
  EXPECT_EQ(h.infinite(), 2U);
  EXPECT_EQ(h.count(), 2U);
  EXPECT_EQ(h.min(), -2.0F);
  EXPECT_EQ(h.max(), 1.0F);
}

TEST(Ranges, NothingForZerosAndForNoNumbers) {
  Histogram zeros, odd;
  zeros.add(std::vector<float>(10, 0.0F));
  odd.add(std::vector<float>{NAN, NAN});
  for (const Method m : {Method::minmax, Method::percentile, Method::entropy, Method::error}) {
    EXPECT_FALSE(choose(zeros, m, {}).has_value());
    EXPECT_FALSE(choose(odd, m, {}).has_value());
  }
}

TEST(Ranges, MinMaxHoldsEveryValueAndZero) {
  Histogram h;
  h.add(std::vector<float>{2.0F, 5.0F});
  EXPECT_EQ(*choose(h, Method::minmax, {}), (Interval{0, 5}));
  EXPECT_EQ(*choose(h, Method::minmax, {true, 99.99}), (Interval{-5, 5}));
}

TEST(Ranges, PercentileLeavesOutliersOut) {
  std::vector<float> x = normal(100000, 1.0F, 3);
  x.push_back(100.0F);
  Histogram h;
  h.add(x);
  EXPECT_LT(choose(h, Method::percentile, {true, 99.99})->hi, 6.0);
  EXPECT_EQ(choose(h, Method::percentile, {true, 100.0})->hi, 100.0);
}

TEST(Ranges, EntropyAndErrorClipAnOutlierAndKeepAFlatDistribution) {
  std::vector<float> x = normal(200000, 1.0F, 4), flat(20000);
  x.push_back(60.0F);
  for (std::size_t i = 0; i < flat.size(); ++i) flat[i] = static_cast<float>(i) / 20000.0F;
  Histogram h, even;
  h.add(x);
  even.add(flat);
  for (const Method m : {Method::entropy, Method::error}) {
    const auto clipped = choose(h, m, {true, 99.99}), kept = choose(even, m, {true, 99.99});
    EXPECT_LT(clipped->hi, 30.0) << name_of(m);
    EXPECT_GT(clipped->hi, 2.0) << name_of(m);
    EXPECT_GT(kept->hi, 0.93) << name_of(m);
  }
}

TEST(Ranges, ErrorIsNeverWorseThanMinMax) {
  for (const bool symmetric : {true, false}) {
    for (const std::uint64_t seed : {5U, 6U, 7U}) {
      std::vector<float> x = normal(5000, 2.0F, seed);
      for (float& v : x) v = v < 0 && seed == 6 ? v * 0.05F : v;  // as behind a LeakyRelu
      Histogram h;
      h.add(x);
      const auto error = [&](Method m) {
        return mean_squared_error(h, quantizer_of(*choose(h, m, {symmetric, 99.99}), symmetric));
      };
      EXPECT_LE(error(Method::error), error(Method::minmax)) << seed;
    }
  }
}

TEST(Ranges, QuantizersKeepZeroExact) {
  const ir::Quantizer q = quantizer_of({-0.375, 6}, false), s = quantizer_of({-3, 2}, true);
  EXPECT_EQ(q.type, ir::DType::u8);
  EXPECT_EQ(ir::view_one(q, 0.0F), 0.0F);
  EXPECT_NEAR(ir::view_one(q, 6.0F), 6.0F, q.scale[0]);
  EXPECT_EQ(s.type, ir::DType::s8);
  EXPECT_EQ(s.zero_point[0], 0);
  EXPECT_EQ(s.scale[0], 3.0F / 127.0F);
}

}  // namespace
}  // namespace octavo::quantize
