// QuantizeLinear, DequantizeLinear (opset 10 to 25), DynamicQuantizeLinear.
#include <array>

#include "onnx/quant_params.h"
#include "onnx/registry.h"
#include "onnx/tensor_proto.h"

namespace octavo::onnx {
namespace {

/// An attribute that names an ONNX element type; nullopt when absent or 0.
Result<std::optional<DType>> type_attr(NodeContext& n, std::string_view key) {
  const std::int64_t code = n.attr_int(key, 0);
  if (code == 0) return std::optional<DType>();
  const auto type = code > 0 && code < 1000 ? dtype_of(static_cast<std::int32_t>(code)) : std::nullopt;
  if (!type) {
    return n.unsupported("{} is {}; {}", key, onnx_type_name(static_cast<std::int32_t>(code)),
                         type_advice(static_cast<std::int32_t>(code)));
  }
  return type;
}

Status refuse_blocks(NodeContext& n) {
  const std::int64_t block = n.attr_int("block_size", 0);
  if (block != 0)
    return n.unsupported("block_size {}: blocked quantization is not covered; quantize per tensor or per channel", block);
  return {};
}

/// Scale and zero point in one shape, as the run-time nodes need them.
Result<std::pair<ValueId, ValueId>> run_time_params(NodeContext& n, DType type) {
  ValueId scale = n.in(1);
  const Shape shape = n.shape(1);
  ValueId zero = n.in(2);
  if (zero == ir::kNone) {
    zero = n.add_constant(Tensor(type, shape));
  } else {
    if (n.type(2).dtype != type)
      return n.bad("the zero point is {}, the codes are {}", ir::name_of(n.type(2).dtype), ir::name_of(type));
    if (n.shape(2) != shape) {
      if (ir::count(shape) != 1 || ir::count(n.shape(2)) != 1)
        return n.bad("scale {} and zero point {} differ in shape", ir::to_string(shape), ir::to_string(n.shape(2)));
      OCTAVO_TRY(zero, n.reshape(zero, shape));
    }
  }
  return std::pair{scale, zero};
}

Result<Attrs> run_time_axis(NodeContext& n, std::int64_t axis) {
  Attrs attrs;
  if (ir::count(n.shape(1)) == 1) return attrs;
  OCTAVO_TRY(axis, n.axis(axis, n.rank(0)));
  attrs["axis"] = axis;
  return attrs;
}

Status quantize_linear(NodeContext& n) {
  OCTAVO_CHECK(refuse_blocks(n));
  n.ignore({"saturate"});  // float8 only
  const std::int64_t axis = n.attr_int("axis", 1);
  OCTAVO_TRY(const auto output, type_attr(n, "output_dtype"));
  OCTAVO_TRY(const auto precision, type_attr(n, "precision"));
  const DType type = n.has(2) ? n.type(2).dtype : output.value_or(DType::u8);
  if (output && *output != type) return n.bad("output_dtype is {}, the zero point {}", ir::name_of(*output), ir::name_of(type));
  OCTAVO_CHECK(check_code_type(n, type, false));
  if (!params_known(n, 1, 2)) {
    OCTAVO_TRY(const auto params, run_time_params(n, type));
    OCTAVO_TRY(Attrs attrs, run_time_axis(n, axis));
    return n.result(n.emit(Op::quantize_rt, {n.in(0), params.first, params.second}, std::move(attrs)));
  }
  OCTAVO_TRY(Quantizer q, read_quantizer(n, {.type = type, .axis = axis, .shape = n.shape(0), .data = n.in(0)}));
  if (precision) q.arith = *precision;
  return n.result(n.emit_quantizer(Op::quantize, n.in(0), std::move(q)));
}

Status dequantize_linear(NodeContext& n) {
  OCTAVO_CHECK(refuse_blocks(n));
  const std::int64_t axis = n.attr_int("axis", 1);
  OCTAVO_TRY(const auto output, type_attr(n, "output_dtype"));
  const DType type = n.type(0).dtype;
  OCTAVO_CHECK(check_code_type(n, type, true));
  n.declare(0, output.value_or(n.declared(1)));
  if (!params_known(n, 1, 2)) {
    OCTAVO_TRY(const auto params, run_time_params(n, type));
    OCTAVO_TRY(Attrs attrs, run_time_axis(n, axis));
    return n.result(n.emit(Op::dequantize_rt, {n.in(0), params.first, params.second}, std::move(attrs)));
  }
  OCTAVO_TRY(Quantizer q,
             read_quantizer(n, {.type = type, .type_given = true, .axis = axis, .shape = n.shape(0), .data = n.in(0)}));
  if (output) q.arith = *output;
  return n.result(n.emit_quantizer(Op::dequantize, n.in(0), std::move(q)));
}

Status dynamic_quantize_linear(NodeContext& n) {
  OCTAVO_TRY(const std::vector<ValueId> out, n.emit_many(Op::dynamic_quantize, {n.in(0)}));
  for (std::size_t i = 0; i < out.size(); ++i) n.set(i, out[i]);
  return {};
}

constexpr std::array kRows{
    OpRow{"QuantizeLinear", "", 10, 0, 2, 3, quantize_linear},
    OpRow{"QuantizeLinear", kMicrosoft, 1, 0, 2, 3, quantize_linear},
    OpRow{"DequantizeLinear", "", 10, 0, 2, 3, dequantize_linear},
    OpRow{"DequantizeLinear", kMicrosoft, 1, 0, 2, 3, dequantize_linear},
    OpRow{"DynamicQuantizeLinear", "", 11, 0, 1, 1, dynamic_quantize_linear},
};

}  // namespace

Family quant_ops() {
  return kRows;
}

}  // namespace octavo::onnx
