// QuantizeLinear, DequantizeLinear (opset 10 to 25), DynamicQuantizeLinear.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "ir/block_codes.h"
#include "ir/small_types.h"
#include "onnx/import/compose.h"
#include "onnx/import/quant_params.h"
#include "onnx/import/registry.h"
#include "onnx/model/held.h"
#include "onnx/model/tensor_proto.h"

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

/// Codes that `quantize` and `dequantize` nodes have no form for: types other than 8 bits, and blocks of scales.
bool written_out(DType type, std::int64_t block) {
  return block != 0 || !(ir::is_int8(type) || type == DType::s32);
}

/// A scale or zero point, ready to be broadcast against the data: one number, one entry along the axis, or one for each block along
/// it.
Result<ValueId> spread(NodeContext& n, Compose& c, ValueId p, std::int64_t axis, std::int64_t block) {
  const Shape data = n.shape(0), given = c.shape(p);
  if (ir::count(given) == 1 && block == 0) return c.reshape(p, {});
  OCTAVO_TRY(axis, n.axis(axis, n.rank(0)));
  const auto a = static_cast<std::size_t>(axis);
  if (block == 0) {
    if (given != Shape{data[a]})
      return n.bad("scale or zero point {}, but dimension {} of {} is {}", ir::to_string(given), axis, ir::to_string(data),
                   data[a]);
    Shape along(data.size(), 1);
    along[a] = data[a];
    return c.reshape(p, along);
  }
  Shape want = data;
  if (block < 1) return n.bad("block_size is {}", block);
  want[a] = data[a] / block + (data[a] % block != 0 ? 1 : 0);
  if (given != want)
    return n.bad("scale or zero point {} for blocks of {} along axis {} of {}, needs {}", ir::to_string(given), block, axis,
                 ir::to_string(data), ir::to_string(want));
  return c.slice(c.repeat(p, axis, std::clamp<std::int64_t>(data[a], 1, block)), axis, 0, data[a]);
}

struct Bounds {
  double lo, hi;
};
Bounds bounds(DType t) {
  switch (t) {
    case DType::s8: return {-128, 127};
    case DType::u8: return {0, 255};
    case DType::s16: return {-32768, 32767};
    case DType::u16: return {0, 65535};
    default: return {static_cast<double>(ir::small_lo(t)), static_cast<double>(ir::small_hi(t))};
  }
}

Status check_written_type(NodeContext& n, DType type) {
  if (ir::is_int8(type) || is_small(type) || type == DType::s16 || type == DType::u16) return {};
  return n.unsupported("codes of type {}", ir::name_of(type));
}

/// Rounds to f16 or bf16 and back, where the division is one of those.
ValueId rounded(Compose& c, ValueId v, DType arith) {
  return arith == DType::f16 || arith == DType::bf16 ? c.cast(c.cast(v, arith), DType::f32) : v;
}

/// QuantizeLinear as division, rounding, sum and bounds; floats of 8 and 4 bits by their cast.
Status quantize_written_out(NodeContext& n, DType type, std::int64_t axis, std::int64_t block, DType arith, bool saturate) {
  Compose c(n);
  OCTAVO_CHECK(check_written_type(n, type));
  OCTAVO_TRY(const ValueId scale, spread(n, c, n.in(1), axis, block));
  ValueId v = rounded(c, c.div(n.in(0), scale), arith), zero = ir::kNone;
  if (n.has(2)) {
    OCTAVO_TRY(zero, spread(n, c, c.cast(n.in(2), DType::f32), axis, block));
  }
  n.declare(0, type);
  if (ir::is_small_float(type)) {
    if (zero != ir::kNone) v = c.add(v, zero);
    v = c.op(Op::cast, {v}, {{"to", std::string(ir::name_of(type))}, {"saturate", std::int64_t{saturate}}});
    return c.finish(c.cast(v, DType::f32));
  }
  v = c.op(Op::round, {v});
  if (zero != ir::kNone) v = c.add(v, zero);
  const Bounds b = bounds(type);
  return c.finish(c.cast(c.op(Op::clip, {v}, {{"min", b.lo}, {"max", b.hi}}), held(type)));
}

/// A constant matrix whose scales belong to columns, to blocks of rows, or to all, as products of matrices take weights: its values, with the codes that
/// they are of. Nothing where it is another constant, or none.
std::optional<ir::BlockCodes> matrix_codes(const NodeContext& n, DType type, std::int64_t axis, std::int64_t block, DType arith) {
  const bool whole = ir::is_int8(type) || ir::is_small_int(type);
  const ir::Tensor *codes = n.constant(0), *scale = n.constant(1), *zero = n.has(2) ? n.constant(2) : nullptr;
  if (!whole || arith != DType::f32 || codes == nullptr || scale == nullptr || (n.has(2) && zero == nullptr) || n.rank(0) != 2 ||
      codes->size() == 0)
    return std::nullopt;
  const std::int64_t rows = codes->shape()[0], columns = codes->shape()[1];
  const bool one = scale->size() == 1 && block == 0;
  if (axis < 0) axis += 2;
  if (!one && axis != (block > 0 ? 0 : 1)) return std::nullopt;
  ir::BlockCodes out{ir::is_int8(type) ? 8 : ir::small_bits(type),
                     block > 0 ? std::min(block, rows) : rows,
                     ir::Tensor(DType::u8, {columns, rows}),
                     {},
                     {}};
  const std::int64_t blocks = (rows + out.block - 1) / out.block;
  if ((!one && scale->size() != blocks * columns) || (zero != nullptr && zero->shape() != scale->shape())) return std::nullopt;
  out.scales = ir::Tensor(DType::f32, {columns, blocks}), out.zeros = ir::Tensor(DType::f32, {columns, blocks});
  const auto lo = static_cast<std::int64_t>(bounds(type).lo);
  const auto to = out.codes.mutable_data<std::uint8_t>();
  const auto scales = out.scales.mutable_data<float>(), zeros = out.zeros.mutable_data<float>();
  for (std::int64_t j = 0; j < columns; ++j) {
    for (std::int64_t i = 0; i < rows; ++i)
      to[static_cast<std::size_t>(j * rows + i)] =
          static_cast<std::uint8_t>(static_cast<std::int64_t>(codes->at(i * columns + j)) - lo);
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t from = one ? 0 : b * columns + j;
      const auto at = static_cast<std::size_t>(j * blocks + b);
      scales[at] = static_cast<float>(scale->at(from));
      zeros[at] = static_cast<float>((zero == nullptr ? 0 : static_cast<std::int64_t>(zero->at(from))) - lo);
    }
  }
  return out;
}

/// (codes - zero point) * scale
Status dequantize_written_out(NodeContext& n, DType type, std::int64_t axis, std::int64_t block, DType arith) {
  Compose c(n);
  if (type != DType::s32) OCTAVO_CHECK(check_written_type(n, type));
  OCTAVO_TRY(const ValueId scale, spread(n, c, n.in(1), axis, block));
  if (auto codes = matrix_codes(n, type, axis, block, arith))
    return n.result(n.add_own_constant(ir::values_of(std::make_shared<const ir::BlockCodes>(*std::move(codes)))));
  ValueId v = c.cast(n.in(0), DType::f32);
  if (n.has(2)) {
    OCTAVO_TRY(const ValueId zero, spread(n, c, c.cast(n.in(2), DType::f32), axis, block));
    v = c.sub(v, zero);
  }
  return c.finish(rounded(c, c.mul(v, scale), arith));
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
  const std::int64_t block = n.attr_int("block_size", 0);
  const bool saturate = n.attr_int("saturate", 1) != 0;
  const std::int64_t axis = n.attr_int("axis", 1);
  OCTAVO_TRY(const auto output, type_attr(n, "output_dtype"));
  OCTAVO_TRY(const auto precision, type_attr(n, "precision"));
  const DType type = n.has(2) ? n.declared(2) : output.value_or(DType::u8);
  if (output && *output != type) return n.bad("output_dtype is {}, the zero point {}", ir::name_of(*output), ir::name_of(type));
  if (written_out(type, block)) return quantize_written_out(n, type, axis, block, precision.value_or(scale_type(n, 1)), saturate);
  OCTAVO_CHECK(check_code_type(n, type, false));
  if (!params_known(n, 1, 2)) {
    OCTAVO_TRY(const auto params, run_time_params(n, type));
    OCTAVO_TRY(Attrs attrs, run_time_axis(n, axis));
    return n.result(n.emit(Op::quantize_rt, {n.in(0), params.first, params.second}, std::move(attrs)));
  }
  OCTAVO_TRY(FileQuantizer f, read_quantizer(n, {.type = type, .axis = axis, .shape = n.shape(0), .data = n.in(0)}));
  if (precision) f.q.arith = *precision;
  return n.result(emit_quantize(n, n.in(0), std::move(f)));
}

Status dequantize_linear(NodeContext& n) {
  const std::int64_t block = n.attr_int("block_size", 0);
  const std::int64_t axis = n.attr_int("axis", 1);
  OCTAVO_TRY(const auto output, type_attr(n, "output_dtype"));
  const DType type = n.declared(0), result = output.value_or(is_small(n.declared(1)) ? DType::f32 : n.declared(1));
  n.declare(0, result);
  if (n.has(2) && n.declared(2) != type)
    return n.bad("the zero point is {}, the codes are {}", ir::name_of(n.declared(2)), ir::name_of(type));
  const DType rounded_to = output.value_or(scale_type(n, 1));
  // Codes of 32 bits are biases, which are constants; computed ones have no node of their own.
  const bool computed = type == DType::s32 && !n.graph().is_constant(n.in(0));
  if (written_out(type, block) || computed) return dequantize_written_out(n, type, axis, block, rounded_to);
  OCTAVO_CHECK(check_code_type(n, type, true));
  if (!params_known(n, 1, 2)) {
    OCTAVO_TRY(const auto params, run_time_params(n, type));
    OCTAVO_TRY(Attrs attrs, run_time_axis(n, axis));
    return n.result(n.emit(Op::dequantize_rt, {n.in(0), params.first, params.second}, std::move(attrs)));
  }
  OCTAVO_TRY(FileQuantizer f,
             read_quantizer(n, {.type = type, .type_given = true, .axis = axis, .shape = n.shape(0), .data = n.in(0)}));
  if (output) f.q.arith = *output;
  return n.result(emit_dequantize(n, n.in(0), std::move(f)));
}

Status dynamic_quantize_linear(NodeContext& n) {
  OCTAVO_TRY(const std::vector<ValueId> out, n.emit_many(Op::dynamic_quantize, {n.in(0)}));
  for (std::size_t i = 0; i < out.size(); ++i) n.set(i, out[i]);
  return {};
}

constexpr std::array kQuantRows{
    OpRow{"QuantizeLinear", "", 10, 0, 2, 3, quantize_linear},
    OpRow{"QuantizeLinear", kMicrosoft, 1, 0, 2, 3, quantize_linear},
    OpRow{"DequantizeLinear", "", 10, 0, 2, 3, dequantize_linear},
    OpRow{"DequantizeLinear", kMicrosoft, 1, 0, 2, 3, dequantize_linear},
    OpRow{"DynamicQuantizeLinear", "", 11, 0, 1, 1, dynamic_quantize_linear},
};

}  // namespace

Family quant_ops() {
  return kQuantRows;
}

}  // namespace octavo::onnx
