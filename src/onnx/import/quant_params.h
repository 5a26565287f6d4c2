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

/// The scale (and zero point) are constant, so that a Quantizer can be made; else the node needs a run-time form.
[[nodiscard]] bool params_known(const NodeContext& n, std::size_t scale, std::size_t zero_point);
/// Refuses by name: 16- and 4-bit types, blocked scales, scales that are not positive and finite. A scale of 0 on a channel of
/// zeros becomes 1, with a note.
[[nodiscard]] Result<Quantizer> read_quantizer(NodeContext& n, const QuantParams& p);
/// 8-bit codes, or int32 (dequantize only); else unsupported, with the way out.
[[nodiscard]] Status check_code_type(NodeContext& n, DType type, bool allow_s32);

/// dequantize(operand `codes`) with its parameters at `codes` + 1 and + 2, or where `scale` and `zero_point` say. `axis` as in
/// QuantParams.
[[nodiscard]] Result<ValueId> dequantized(NodeContext& n, std::size_t codes, std::size_t scale, std::size_t zero_point,
                                          std::int64_t axis);
/// quantize(v) with the parameters at `scale`, `zero_point`, per tensor or along `axis`.
[[nodiscard]] Result<ValueId> quantized(NodeContext& n, ValueId v, std::size_t scale, std::size_t zero_point, std::int64_t axis);

}  // namespace octavo::onnx
