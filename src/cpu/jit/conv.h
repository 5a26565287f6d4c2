// The generated convolution: conv, conv_transpose and gemm (as 1x1 conv), u8 x s8 by vpdpbusd, AMX tiles or (AVX2) vpmaddwd, f32 by vfmadd231ps.
//
// Packed constants: [0] s8 weights, blocks of up to 64 output channels, each [segment][quad][vector][16 channels][4 bytes], with
// tiles [segment][step][vector][quad][16 channels][4 bytes]; [1] s32 initial accumulators -zx * sum(w), 16 per vector. With
// ConvSetting::forms also [2] and [3] of pack_forms. Of pairs: [0] s16 weights minus their zero points, two a quad and channel,
// blocks of up to 24 channels; [1] s32 biases or zeros. Of floats: [0] f32 weights, one a quad and channel, or bf16 ones, two a quad and
// channel, [1] f32 biases or zeros.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cpu/family.h"
#include "cpu/jit/conv_plan.h"
#include "cpu/jit/tiles.h"

namespace octavo::cpu::jit {

[[nodiscard]] std::vector<std::int64_t> packed_bytes(const ConvSetting& conv);
/// All that pack_conv reads of a setting beside constants.
[[nodiscard]] std::string layout_of(const ConvSetting& conv);
[[nodiscard]] Result<std::vector<ir::Tensor>> pack_conv(const ConvSetting& conv);
[[nodiscard]] Result<std::unique_ptr<Kernel>> load_conv(ConvSetting conv, Packed packed, const Tiles& tiles = Tiles::native());

}  // namespace octavo::cpu::jit
