#include "tune/activations.h"

#include <cstdint>
#include <cstring>

namespace octavo::tune {
namespace {

using ir::DType;

/// splitmix64
std::uint64_t next(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15U);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

/// Eight bytes, each the sum of two of six bits, and 64; or as signed bytes.
std::uint64_t codes(std::uint64_t bits, DType type) {
  constexpr std::uint64_t six = 0x3f3f3f3f3f3f3f3fU, first = 0x4040404040404040U, sign = 0x8080808080808080U;
  const std::uint64_t sum = (bits & six) + (bits >> 2 & six) + first;
  return type == DType::s8 ? sum ^ sign : sum;
}

std::uint64_t two_floats(std::uint64_t bits) {
  const float pair[2] = {static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-31F,
                         static_cast<float>(static_cast<std::int32_t>(bits >> 32)) * 0x1p-31F};
  std::uint64_t out;
  std::memcpy(&out, pair, sizeof out);
  return out;
}

/// Four numbers of 1/16 to 1 with random signs: of each 16 bits, sign and mantissa as they are, and two bits more than the exponent of 1/16.
std::uint64_t four_halves(std::uint64_t bits, DType type) {
  constexpr std::uint64_t all = 0x0001000100010001U;
  if (type == DType::f16) return (bits & all * 0x83ff) | ((bits & all * 0x0c00) + all * 0x2c00);
  return (bits & all * 0x807f) | ((bits & all * 0x0180) + all * 0x3d80);
}

}  // namespace

void fill_activations(std::byte* at, std::size_t bytes, DType type) {
  const bool half = type == DType::f16 || type == DType::bf16;
  if (type != DType::u8 && type != DType::s8 && type != DType::f32 && !half) return;
  std::uint64_t state = 1;
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t bits = next(state);
    const std::uint64_t word = type == DType::f32 ? two_floats(bits) : half ? four_halves(bits, type) : codes(bits, type);
    std::memcpy(at + i, &word, bytes - i < 8 ? bytes - i : 8);
  }
}

}  // namespace octavo::tune
