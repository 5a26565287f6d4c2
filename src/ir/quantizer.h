// A quantizer q = (type, scale, zero point, axis, arithmetic type), and the scalar formulas of QuantizeLinear/DequantizeLinear.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/tensor.h"

namespace octavo::ir {

/// The parameters of one QuantizeLinear/DequantizeLinear pair.
///   quantize    code = clamp(rne(x / scale), lo - zp, hi - zp) + zp      (division in `arith`; NaN gives zp)
///   dequantize  x    = (code - zp) * scale                               (product rounded to `arith`)
/// Ranges: s8 [-128,127], u8 [0,255], s32 (bias; dequantize only). scale > 0 and finite, one entry or D[axis] entries.
struct Quantizer {
  DType type = DType::u8;
  std::vector<float> scale{1.0F};
  std::vector<std::int32_t> zero_point{0};
  int axis = -1;             ///< -1: per tensor (one entry). Otherwise the index of the quantized dimension, never negative.
  DType arith = DType::f32;  ///< f32, f16 or bf16: the type the division and the product are rounded to
  bool operator==(const Quantizer&) const = default;

  [[nodiscard]] bool per_tensor() const { return axis < 0; }
  [[nodiscard]] std::int64_t lo() const;  ///< smallest code of `type`
  [[nodiscard]] std::int64_t hi() const;
  [[nodiscard]] std::size_t entries() const { return scale.size(); }
  [[nodiscard]] float scale_at(std::int64_t channel) const { return scale[per_tensor() ? 0 : static_cast<std::size_t>(channel)]; }
  [[nodiscard]] std::int32_t zero_at(std::int64_t channel) const {
    return zero_point[per_tensor() ? 0 : static_cast<std::size_t>(channel)];
  }
};

[[nodiscard]] inline Quantizer per_tensor(DType type, float scale, std::int32_t zero_point = 0) {
  return Quantizer{type, {scale}, {zero_point}, -1, DType::f32};
}

/// "u8(0.02,128)", "s8[axis=0](0.1,0.2;0,0)", with "@f16" appended for another arithmetic type. Shortest text that reads back exactly.
[[nodiscard]] std::string to_string(const Quantizer& q);
/// Reads what to_string prints; nullopt if the text is not a quantizer.
[[nodiscard]] std::optional<Quantizer> parse_quantizer(std::string_view text);

/// Rounds x to the arithmetic type (identity for f32).
[[nodiscard]] float round_to(DType arith, float x);
[[nodiscard]] std::int32_t quantize_one(float x, float scale, std::int32_t zp, std::int64_t lo, std::int64_t hi,
                                        DType arith = DType::f32);
[[nodiscard]] float dequantize_one(std::int32_t code, float scale, std::int32_t zp, DType arith = DType::f32);
/// q(x) = dequantize(quantize(x)) for channel c.
[[nodiscard]] float view_one(const Quantizer& q, float x, std::int64_t channel = 0);

/// The same values with the type u8: s8/zp becomes u8/zp+128 (exact). Other types are returned unchanged.
[[nodiscard]] Quantizer as_u8(const Quantizer& q);
/// The same values with the type s8: u8/zp becomes s8/zp-128 (exact).
[[nodiscard]] Quantizer as_s8(const Quantizer& q);
/// A per-axis quantizer whose entries are all equal, as per tensor.
[[nodiscard]] Quantizer collapse_axis(const Quantizer& q);
/// True if q2(q1(x)) == q1(x) for every x: q2 fixes every code of q1, decided by enumerating them.
/// Per-axis quantizers need the same axis and entry count (or per tensor on either side).
[[nodiscard]] bool fixes(const Quantizer& q2, const Quantizer& q1);
/// True if different codes stand for different values, so that a value tells its code. Always so in f32 (unless the scale is denormal);
/// the rounding of f16 and bf16 products can make two codes one value.
[[nodiscard]] bool injective(const Quantizer& q);

}  // namespace octavo::ir
