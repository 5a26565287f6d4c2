#include "onnx/import/quant_params.h"

#include <cmath>

#include "ir/small_types.h"

namespace octavo::onnx {
namespace {

/// The constant behind v, looking through quantize: float values or codes. nullptr if v depends on the inputs.
const Tensor* constant_behind(const ir::Graph& g, ValueId v) {
  while (v != ir::kNone) {
    const ir::Node& n = g.producer(v);
    if (n.op == Op::constant) return &n.payload;
    if (n.op != Op::quantize) return nullptr;
    v = n.inputs[0];
  }
  return nullptr;
}

/// Every element of channel c (all elements when axis < 0) is zero: the code zp, or the value 0.
bool channel_is_zero(const Tensor& t, int axis, std::int64_t c, std::int32_t zp) {
  const double zero = ir::is_float(t.dtype()) ? 0.0 : zp;
  const Shape strides = ir::dense_strides(t.shape());
  for (std::int64_t i = 0; i < t.size(); ++i) {
    const bool mine = axis < 0 || i / strides[static_cast<std::size_t>(axis)] % t.shape()[static_cast<std::size_t>(axis)] == c;
    if (mine && t.at(i) != zero) return false;
  }
  return true;
}

}  // namespace

bool params_known(const NodeContext& n, std::size_t scale, std::size_t zero_point) {
  return n.constant(scale) && (!n.has(zero_point) || n.constant(zero_point));
}

Status check_code_type(NodeContext& n, DType type, bool allow_s32) {
  if (ir::is_int8(type) || (allow_s32 && type == DType::s32)) return {};
  return n.unsupported("codes of type {}: only int8 and uint8{} are covered; quantize to 8 bits", ir::name_of(type),
                       allow_s32 ? " (and int32 into DequantizeLinear)" : "");
}

Result<Quantizer> read_quantizer(NodeContext& n, const QuantParams& p) {
  const Tensor* scale = n.constant(p.scale);
  const Tensor* zero = n.constant(p.zero_point);
  if (!scale || (n.has(p.zero_point) && !zero)) {
    return n.unsupported("scale \"{}\" or its zero point is computed at run time; it must be constant here", n.input_name(p.scale));
  }
  if (!ir::is_float(scale->dtype()))
    return n.bad("scale \"{}\" is {}, needs a float type", n.input_name(p.scale), ir::to_string(scale->type()));
  Quantizer q;
  q.type = zero && !p.type_given ? zero->dtype() : p.type;
  if (zero && zero->dtype() != q.type) {
    return n.bad("the zero point is {}, the codes are {}", ir::name_of(zero->dtype()), ir::name_of(q.type));
  }
  OCTAVO_CHECK(check_code_type(n, q.type, p.type_given));
  q.arith = n.declared(p.scale);
  if (ir::is_small_float(q.arith)) q.arith = DType::f32;
  if (q.arith == DType::f64) return n.unsupported("a scale of type double; scales are float, float16 or bfloat16");
  const std::int64_t entries = scale->size();
  if (zero && zero->size() != entries) {
    return n.bad("scale \"{}\" has {} entries, zero point \"{}\" {}", n.input_name(p.scale), entries, n.input_name(p.zero_point),
                 zero->size());
  }
  const auto rank = static_cast<std::int64_t>(p.shape.size());
  if (entries != 1) {
    if (scale->shape().size() != 1) {
      return n.unsupported(
          "scale \"{}\" is {}: one scale or one for each channel has at most one dimension, blocks need block_size (opset 21)",
          n.input_name(p.scale), ir::to_string(scale->type()));
    }
    OCTAVO_TRY(const std::int64_t axis, n.axis(p.axis, rank));
    q.axis = static_cast<int>(axis);
    const std::int64_t channels = p.shape[static_cast<std::size_t>(axis)];
    if (entries != channels) {
      return n.bad("scale \"{}\" has {} entries, but dimension {} of {} is {}; likely the exporter quantized along another axis",
                   n.input_name(p.scale), entries, axis, ir::to_string(p.shape), channels);
    }
  }
  q.scale.clear();
  q.zero_point.clear();
  const Tensor* behind = nullptr;
  std::int64_t substituted = 0;
  for (std::int64_t c = 0; c < entries; ++c) {
    auto s = static_cast<float>(scale->at(c));
    const auto zp = zero ? static_cast<std::int32_t>(zero->at(c)) : 0;
    if (s == 0) {
      if (!behind) behind = constant_behind(n.graph(), p.data);
      if (behind && channel_is_zero(*behind, q.axis, c, zp)) {
        s = 1.0F;
        ++substituted;
      }
    }
    if (!(s > 0) || !std::isfinite(s)) {
      return n.bad(
          "scale \"{}\"{} is {}; a scale must be positive and finite. Quantize again; a scale of 0 usually means that calibration "
          "saw "
          "only zeros",
          n.input_name(p.scale), q.per_tensor() ? "" : fmt::format(" of channel {}", c), s);
    }
    q.scale.push_back(s);
    q.zero_point.push_back(zp);
  }
  if (substituted) {
    n.note(fmt::format("scale \"{}\" is 0 for {} of {} channels, which hold only zeros; 1 is used instead", n.input_name(p.scale),
                       substituted, entries));
  }
  return q;
}

Result<ValueId> dequantized(NodeContext& n, std::size_t codes, std::size_t scale, std::size_t zero_point, std::int64_t axis) {
  OCTAVO_TRY(Quantizer q, read_quantizer(n, {.scale = scale,
                                             .zero_point = zero_point,
                                             .type = n.type(codes).dtype,
                                             .type_given = true,
                                             .axis = axis,
                                             .shape = n.shape(codes),
                                             .data = n.in(codes)}));
  q.arith = DType::f32;  // QLinear operators do not round between their steps
  return n.emit_quantizer(Op::dequantize, n.in(codes), std::move(q));
}

Result<ValueId> quantized(NodeContext& n, ValueId v, std::size_t scale, std::size_t zero_point, std::int64_t axis) {
  OCTAVO_TRY(Quantizer q,
             read_quantizer(n, {.scale = scale, .zero_point = zero_point, .axis = axis, .shape = n.shape_of(v), .data = v}));
  q.arith = DType::f32;
  return n.emit_quantizer(Op::quantize, v, std::move(q));
}

}  // namespace octavo::onnx
