// Many floats of one scale to 8-bit codes, for weights: what quantize_one computes, in a loop that compilers make vectors of.
#pragma once

#include <cstdint>
#include <span>

namespace octavo::ir {

/// codes[i] = quantize_one(x[i], scale, zp, lo, hi) in float32 arithmetic; signed codes as two's complement. -255 <= lo - zp, hi - zp <= 255.
void quantize_many(std::span<const float> x, float scale, std::int32_t zp, std::int32_t lo, std::int32_t hi,
                   std::span<std::uint8_t> codes);

}  // namespace octavo::ir
