#include "ir/small_types.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/facts.h"

namespace octavo::ir {
namespace {

/// sign, exponent, mantissa. `fnuz`: no negative zero, whose code is the only NaN. `fn`: no infinities.
struct Format {
  int exponent_bits, mantissa_bits, bias;
  bool fn, fnuz;
  std::uint8_t largest;  ///< code of the largest finite value
};

Format format_of(DType t) {
  switch (t) {
    case DType::f8e4m3fn: return {4, 3, 7, true, false, 0x7e};
    case DType::f8e4m3fnuz: return {4, 3, 8, true, true, 0x7f};
    case DType::f8e5m2: return {5, 2, 15, false, false, 0x7b};
    case DType::f8e5m2fnuz: return {5, 2, 16, true, true, 0x7f};
    default: return {2, 1, 1, true, false, 0x07};  // f4e2m1
  }
}

std::uint8_t power_code(float x, bool saturate, ScaleRounding rounding) {
  if (std::isnan(x)) return 0xff;
  const double v = std::abs(static_cast<double>(x));
  if (std::isinf(v)) return saturate ? 0xfe : 0xff;
  if (v == 0) return 0;
  int e = 0;
  const double m = std::frexp(v, &e);  // v = m * 2^e, m in [0.5, 1)
  --e;
  const bool above = m > 0.5;
  if (rounding == ScaleRounding::up && above) ++e;
  if (rounding == ScaleRounding::nearest && m >= 0.75) ++e;
  if (e > 127) return saturate ? 0xfe : 0xff;
  return static_cast<std::uint8_t>(std::max(e + 127, 0));
}

}  // namespace

int small_bits(DType t) {
  if (t == DType::s2 || t == DType::u2) return 2;
  return is_small_int(t) || t == DType::f4e2m1 ? 4 : 8;
}
std::int64_t small_lo(DType t) {
  return t == DType::s4 ? -8 : t == DType::s2 ? -2 : 0;
}
std::int64_t small_hi(DType t) {
  return t == DType::s4 ? 7 : t == DType::u4 ? 15 : t == DType::s2 ? 1 : 3;
}

float small_to_f32(DType t, std::uint8_t code) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  if (t == DType::f8e8m0) return code == 0xff ? kNan : std::ldexp(1.0F, code - 127);
  const Format f = format_of(t);
  const int bits = 1 + f.exponent_bits + f.mantissa_bits;
  const bool negative = ((code >> (bits - 1)) & 1) != 0;
  const int magnitude = code & ((1 << (bits - 1)) - 1);
  if (f.fnuz && negative && magnitude == 0) return kNan;
  if (magnitude > f.largest) {
    const bool infinite = !f.fn && magnitude == f.largest + 1;
    return !infinite ? kNan : negative ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
  }
  const int e = magnitude >> f.mantissa_bits, m = magnitude & ((1 << f.mantissa_bits) - 1);
  const float v = e == 0 ? std::ldexp(static_cast<float>(m), 1 - f.bias - f.mantissa_bits)
                         : std::ldexp(static_cast<float>(m + (1 << f.mantissa_bits)), e - f.bias - f.mantissa_bits);
  return negative ? -v : v;
}

std::uint8_t f32_to_small(DType t, float x, bool saturate, ScaleRounding power) {
  if (t == DType::f8e8m0) return power_code(x, saturate, power);
  const Format f = format_of(t);
  const int bits = 1 + f.exponent_bits + f.mantissa_bits;
  const auto sign = static_cast<std::uint8_t>(std::signbit(x) ? 1 << (bits - 1) : 0);
  const auto nan = static_cast<std::uint8_t>(f.fnuz ? 0x80 : 0x7f);
  const bool four = t == DType::f4e2m1;
  if (std::isnan(x)) return four ? std::uint8_t{8} : f.fnuz ? nan : static_cast<std::uint8_t>(sign | nan);
  const auto beyond = [&]() -> std::uint8_t {
    if (saturate || four) return static_cast<std::uint8_t>(sign | f.largest);
    if (!f.fn) return static_cast<std::uint8_t>(sign | (f.largest + 1));
    return f.fnuz ? nan : static_cast<std::uint8_t>(sign | nan);
  };
  if (std::isinf(x)) return beyond();
  const double v = std::abs(static_cast<double>(x));
  int e = 0;
  std::frexp(v, &e);  // v in [2^(e-1), 2^e)
  const int least = 1 - f.bias;
  const int exponent = v == 0 ? least : std::max(e - 1, least);
  const double steps = std::nearbyint(std::ldexp(v, f.mantissa_bits - exponent));  // exact scaling; half to even
  if (std::ldexp(steps, exponent - f.mantissa_bits) > static_cast<double>(small_to_f32(t, f.largest))) return beyond();
  // The code of a value grows by one a step, across exponents too.
  const int magnitude = ((exponent - least) << f.mantissa_bits) + static_cast<int>(steps);
  if (f.fnuz && magnitude == 0) return 0;
  return static_cast<std::uint8_t>(sign | magnitude);
}

}  // namespace octavo::ir
