// Roundings of half.h for whole arrays. Every element takes the same steps, so that compilers make vector code of them.
#pragma once

#include <cstdint>
#include <span>

namespace octavo {

/// to[i] = f32_to_f16(from[i]). `to` has as many elements as `from`.
void f32_to_f16_all(std::span<const float> from, std::span<std::uint16_t> to);
/// to[i] = f32_to_bf16(from[i]).
void f32_to_bf16_all(std::span<const float> from, std::span<std::uint16_t> to);
/// to[i] = f16_to_f32(f32_to_f16(from[i])).
void round_to_f16_all(std::span<const float> from, std::span<float> to);
/// to[i] = bf16_to_f32(f32_to_bf16(from[i])).
void round_to_bf16_all(std::span<const float> from, std::span<float> to);

}  // namespace octavo
