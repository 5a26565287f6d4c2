#include "program/reciprocal.h"

#include <bit>
#include <cmath>

namespace octavo::program {
namespace {

/// To an integer, ties to even; |v| below 2^22.
float rounded(float v) {
  constexpr float kIntegers = 12582912.0F;
  return (v + kIntegers) - kIntegers;
}

}  // namespace

Reciprocal Reciprocal::of(float s) {
  const double exact = 1 / static_cast<double>(s);
  float high = static_cast<float>(exact);
  if (static_cast<double>(high) >= exact) high = std::nextafter(high, 0.0F);
  return {high, static_cast<float>(exact - static_cast<double>(high))};
}

bool same_codes(float s, std::int32_t first, std::int32_t last) {
  if (!(s > 1e-18F && s < 1e18F)) return false;  // far from where anything is denormal or infinite
  const Reciprocal r = Reciprocal::of(s);
  for (std::int64_t k = first; k <= std::int64_t{last} + 1; ++k) {
    const auto middle = static_cast<float>((static_cast<double>(k) - 0.5) * static_cast<double>(s));
    for (std::int32_t step = -4; step <= 4; ++step) {
      const float x = std::bit_cast<float>(std::bit_cast<std::int32_t>(middle) + step);
      if (rounded(x / s) != rounded(std::fma(x, r.high, x * r.low))) return false;
    }
  }
  return true;
}

}  // namespace octavo::program
