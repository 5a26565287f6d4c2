// Scale and zero point operands of the quantization operators -> ir::Quantizer.
#pragma once

#include "onnx/import/node_context.h"

namespace octavo::onnx {

/// Where a node keeps the parameters of one quantizer.
struct QuantParams {
  std::size_t scale = 1, zero_point = 2;  ///< operand indices; the zero point may be absent
  DType type = DType::u8;                 ///< type of the codes when the zero point does not say it
  bool type_given = false;                ///< `type` is that of the codes and the zero point must agree
  std::int64_t axis = 1;                  ///< quantized dimension when there are several scales; may be negative
  Shape shape;                            ///< of the data
  ValueId data = ir::kNone;               ///< codes or values, when they may be constant: decides whether a scale of 0 is harmless
};

/// The type that quotients and products with the scale are rounded to (ImportOptions::round_to_scale_type): f32 for scales of 8 bits.
[[nodiscard]] DType scale_type(NodeContext& n, std::size_t scale);
/// The scale (and zero point) are constant, so that a Quantizer can be made; else the node needs a run-time form.
[[nodiscard]] bool params_known(const NodeContext& n, std::size_t scale, std::size_t zero_point);
/// The parameters as a file gives them. Scales may be negative (NNCF writes such weights); an ir::Quantizer has none:
///     (c - zp) * s = (c' - zp') * |s|   with c' = k - c, zp' = k - zp
/// is exact for every k. With k = lo + hi all codes of the type are codes again, and quantizing gives c' where it gave c: rounding to nearest even
/// is the same on both sides of 0. (c - zp) = 0 gives 0 where the negative scale gives -0.
struct FileQuantizer {
  Quantizer q;                 ///< as it is in the file, scales finite and not 0
  std::vector<char> negative;  ///< by entry of q; empty: none is
};
/// Refuses by name: 16- and 4-bit types, blocked scales, scales that are 0 or not finite. A scale of 0 on a channel of zeros becomes 1,
/// with a note.
[[nodiscard]] Result<FileQuantizer> read_quantizer(NodeContext& n, const QuantParams& p);
/// dequantize and quantize with scales above 0. Where some are below, constant codes are turned round (k = lo + hi + 1 where they allow it: weights around
/// 0 keep the zero point 0); codes that a run computes are turned by an operator of their own.
[[nodiscard]] Result<ValueId> emit_dequantize(NodeContext& n, ValueId codes, FileQuantizer f);
[[nodiscard]] Result<ValueId> emit_quantize(NodeContext& n, ValueId v, FileQuantizer f);
/// 8-bit codes, or int32 (dequantize only); else unsupported, with the way out.
[[nodiscard]] Status check_code_type(NodeContext& n, DType type, bool allow_s32);

/// dequantize(operand `codes`) with its parameters at `codes` + 1 and + 2, or where `scale` and `zero_point` say. `axis` as in
/// QuantParams.
[[nodiscard]] Result<ValueId> dequantized(NodeContext& n, std::size_t codes, std::size_t scale, std::size_t zero_point,
                                          std::int64_t axis);
/// quantize(v) with the parameters at `scale`, `zero_point`, per tensor or along `axis`.
[[nodiscard]] Result<ValueId> quantized(NodeContext& n, ValueId v, std::size_t scale, std::size_t zero_point, std::int64_t axis);

}  // namespace octavo::onnx
