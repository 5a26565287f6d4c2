#include "ir/quantize_many.h"

#include <cassert>

namespace octavo::ir {

/// The bounds are integers, so clamping before rounding gives what clamping after it does. Adding 1.5 * 2^23 to a float of at most 255 leaves no bits
/// for a fraction: it is rounded to the nearest integer, ties to even.
void quantize_many(std::span<const float> x, float scale, std::int32_t zp, std::int32_t lo, std::int32_t hi,
                   std::span<std::uint8_t> codes) {
  assert(x.size() == codes.size() && lo - zp >= -255 && hi - zp <= 255);
  constexpr float kNoFraction = 12582912.0F;
  const auto least = static_cast<float>(lo - zp), most = static_cast<float>(hi - zp);
  for (std::size_t i = 0; i < x.size(); ++i) {
    float ratio = x[i] / scale;
    ratio = ratio == ratio ? ratio : 0.0F;  // NaN becomes the zero point
    ratio = ratio < least ? least : ratio;
    ratio = ratio > most ? most : ratio;
    const float rounded = (ratio + kNoFraction) - kNoFraction;
    codes[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(rounded) + zp);
  }
}

}  // namespace octavo::ir
