#include "base/half_arrays.h"

#include <bit>
#include <cstddef>

namespace octavo {
namespace {

/// As f32_to_f16, all cases computed.
std::uint32_t f16_bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffffU;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
  const std::uint32_t normal = (magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U) >> 13;
  std::uint32_t out = magnitude < 0x38800000U ? subnormal : normal;
  out = magnitude >= 0x477ff000U ? 0x7c00U : out;
  out = magnitude > 0x7f800000U ? 0x7e00U : out;
  return ((bits >> 16) & 0x8000U) | out;
}
/// As bf16_to_f32(f32_to_bf16(value)), as bits.
std::uint32_t bf16_rounded(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t number = bits + 0x7fffU + ((bits >> 16) & 1U), nan = bits | 0x400000U;
  return ((bits & 0x7fffffffU) > 0x7f800000U ? nan : number) & 0xffff0000U;
}
float f16_rounded(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffffU;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F - 0.5F);
  const std::uint32_t normal = (magnitude + 0xfffU + ((magnitude >> 13) & 1U)) & ~0x1fffU;
  std::uint32_t out = magnitude < 0x38800000U ? subnormal : normal;
  out = magnitude >= 0x477ff000U ? 0x7f800000U : out;
  out = magnitude > 0x7f800000U ? 0x7fc00000U : out;
  return std::bit_cast<float>((bits & 0x80000000U) | out);
}

/// Blocks of a constant length become vector code without a remainder at every level of optimization.
template <class From, class To, class Each>
void each(std::span<const From> from, std::span<To> to, const Each& one) {
  constexpr std::size_t kBlock = 16;
  std::size_t i = 0;
  for (; i + kBlock <= from.size(); i += kBlock) {
    const From* const in = from.data() + i;
    To block[kBlock];
    for (std::size_t k = 0; k < kBlock; ++k) block[k] = static_cast<To>(one(in[k]));
    for (std::size_t k = 0; k < kBlock; ++k) to[i + k] = block[k];
  }
  for (; i < from.size(); ++i) to[i] = static_cast<To>(one(from[i]));
}

}  // namespace

void f32_to_f16_all(std::span<const float> from, std::span<std::uint16_t> to) {
  each(from, to, f16_bits);
}
void f32_to_bf16_all(std::span<const float> from, std::span<std::uint16_t> to) {
  each(from, to, [](float v) { return bf16_rounded(v) >> 16; });
}
void round_to_f16_all(std::span<const float> from, std::span<float> to) {
  each(from, to, f16_rounded);
}
void round_to_bf16_all(std::span<const float> from, std::span<float> to) {
  each(from, to, [](float v) { return std::bit_cast<float>(bf16_rounded(v)); });
}

}  // namespace octavo
