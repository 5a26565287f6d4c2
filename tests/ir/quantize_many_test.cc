// Many at a time give what one at a time gives: ties, bounds, infinities, NaN, every zero point at its ends, strange scales.
#include "ir/quantize_many.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ir/quantizer.h"

namespace octavo::ir {
namespace {

std::vector<float> values(float scale) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> x{0, -0.0F, kInf, -kInf, std::nanf(""), 1e38F, -1e38F, 1e-45F, -1e-45F};
  for (int code = -520; code <= 520; ++code) {
    const float at = scale * (static_cast<float>(code) / 2);  // codes and the ties between them
    for (const float v : {at, std::nextafter(at, kInf), std::nextafter(at, -kInf)}) x.push_back(v);
  }
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) x.push_back(scale * std::uniform_real_distribution<float>(-400, 400)(random));
  return x;
}

TEST(QuantizeMany, EqualsOneAtATime) {
  for (const float scale : {1.0F, 0.0371F, 3e-5F, 1e-40F, 2.5e20F, 0.0F}) {
    const std::vector<float> x = values(scale == 0 ? 1 : scale);
    for (const bool is_signed : {false, true}) {
      const std::int32_t lo = is_signed ? -128 : 0, hi = is_signed ? 127 : 255;
      for (const std::int32_t zp : {lo, lo + 1, 0, (lo + hi) / 2, hi - 1, hi}) {
        std::vector<std::uint8_t> codes(x.size());
        quantize_many(x, scale, zp, lo, hi, codes);
        for (std::size_t i = 0; i < x.size(); ++i) {
          const std::int32_t got = is_signed ? static_cast<std::int8_t>(codes[i]) : codes[i];
          ASSERT_EQ(got, quantize_one(x[i], scale, zp, lo, hi)) << x[i] << " / " << scale << " zp " << zp;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::ir
