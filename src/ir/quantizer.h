// A quantizer q = (type, scale, zero point, axis, arithmetic type), and the scalar formulas of QuantizeLinear/DequantizeLinear.
#pragma once

#include <cstdint>
#include <map>
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

/// s8 around 0, as calibration tables say it: scale = largest magnitude / 127.
[[nodiscard]] inline Quantizer symmetric(float scale) {
  return per_tensor(DType::s8, scale);
}
/// u8 whose codes reach from min(lo, 0) to max(hi, 0): scale = fl((hi - lo) / 255) in double, zero point = rne(-lo / scale), so that 0 is a
/// code. The ends of what it makes, in double, give it back.
[[nodiscard]] Quantizer covering(double lo, double hi);
/// The smallest and the largest value of a code, in double; s8 around 0 counts from -127.
struct Ends {
  double lo = 0, hi = 0;
};
[[nodiscard]] Ends ends_of(const Quantizer& q);
/// One scale, finite and not negative, of 8 bits with arithmetic in float32, and a zero point among the codes: what a range may be.
[[nodiscard]] bool is_range(const Quantizer& q);
/// Of two ranges of one tensor the one with the longer step, whatever their order.
[[nodiscard]] const Quantizer& wider(const Quantizer& a, const Quantizer& b);

/// Implicit quantization: through which quantizers tensors may be read, by name. One scale a tensor, 8 bits, arithmetic in float32. A scale of 0 or
/// infinity is that of a tensor which has no usable range, as tables say.
using Ranges = std::map<std::string, Quantizer>;
[[nodiscard]] Ranges symmetric(const std::map<std::string, float>& scales);

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
