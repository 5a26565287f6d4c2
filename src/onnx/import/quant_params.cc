#include "onnx/import/quant_params.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "ir/small_types.h"
#include "onnx/import/importer.h"

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

/// For each code c of channel k: turn[k] - c where the channel's scale is negative.
Tensor turned(const Tensor& codes, const Quantizer& q, const std::vector<char>& negative, const Ints& turn) {
  Tensor out = codes.clone();
  const std::int64_t inner = q.per_tensor() ? codes.size() : ir::dense_strides(codes.shape())[static_cast<std::size_t>(q.axis)];
  const auto channel = [&](std::int64_t i) {
    return q.per_tensor() ? std::size_t{0} : static_cast<std::size_t>(i / inner) % negative.size();
  };
  const auto all = [&](auto data) {
    for (std::size_t i = 0; i < data.size(); ++i) {
      const std::size_t c = channel(static_cast<std::int64_t>(i));
      if (negative[c] != 0) data[i] = static_cast<std::remove_reference_t<decltype(data[i])>>(turn[c] - data[i]);
    }
  };
  switch (codes.dtype()) {
    case DType::s8: all(out.mutable_data<std::int8_t>()); break;
    case DType::u8: all(out.mutable_data<std::uint8_t>()); break;
    default: all(out.mutable_data<std::int32_t>()); break;
  }
  return out;
}

/// The quantizer with positive scales whose codes are turn[c] - those of q in the channels that are negative.
Quantizer positive(Quantizer q, const std::vector<char>& negative, const Ints& turn) {
  for (std::size_t c = 0; c < negative.size(); ++c) {
    if (negative[c] == 0) continue;
    q.scale[c] = -q.scale[c];
    q.zero_point[c] = static_cast<std::int32_t>(turn[c] - q.zero_point[c]);
  }
  return q;
}

/// The codes of a run turned round within their type: lo + hi - c has the bits of c inverted.
Result<ValueId> turned_at_run_time(NodeContext& n, ValueId codes, const FileQuantizer& f) {
  Shape shape;
  if (!f.q.per_tensor()) {
    shape.assign(n.shape_of(codes).size(), 1);
    shape[static_cast<std::size_t>(f.q.axis)] = static_cast<std::int64_t>(f.negative.size());
  }
  Tensor mask(f.q.type, shape);
  for (std::size_t c = 0; c < f.negative.size(); ++c)
    mask.mutable_bytes()[c] = static_cast<std::byte>(f.negative[c] != 0 ? 0xff : 0);
  return n.emit(Op::bitwise, {codes, n.add_constant(std::move(mask))}, {{"function", std::string("xor")}});
}

Ints whole_range(const FileQuantizer& f) {
  return Ints(f.negative.size(), f.q.lo() + f.q.hi());
}

}  // namespace

Result<ValueId> emit_dequantize(NodeContext& n, ValueId codes, FileQuantizer f) {
  if (f.negative.empty()) return n.emit_quantizer(Op::dequantize, codes, std::move(f.q));
  const ir::Node& made = n.graph().producer(codes);
  if (made.op != Op::constant || made.quantizer) {
    if (!ir::is_int8(f.q.type))
      return n.unsupported("codes of type {} and a negative scale; give constant codes", ir::name_of(f.q.type));
    OCTAVO_TRY(codes, turned_at_run_time(n, codes, f));
    return n.emit_quantizer(Op::dequantize, codes, positive(f.q, f.negative, whole_range(f)));
  }
  const Tensor given = made.payload;  // shares the bytes: the graph may move its nodes
  Ints turn = whole_range(f), least(f.negative.size(), f.q.hi());
  const std::int64_t inner = f.q.per_tensor() ? given.size() : ir::dense_strides(given.shape())[static_cast<std::size_t>(f.q.axis)];
  for (std::int64_t i = 0; i < given.size(); ++i) {
    const std::size_t c = f.q.per_tensor() ? 0 : static_cast<std::size_t>(i / inner) % f.negative.size();
    least[c] = std::min(least[c], static_cast<std::int64_t>(given.at(i)));
  }
  for (std::size_t c = 0; c < turn.size(); ++c) {
    if (f.negative[c] == 0) continue;
    if (least[c] > f.q.lo() && f.q.zero_point[c] > f.q.lo()) ++turn[c];
    if (f.q.type == DType::s32 && turn[c] != 0)
      return n.unsupported("a bias with the code {} and a negative scale in channel {}; quantize it again", least[c], c);
  }
  n.note(fmt::format("{} of {} scales are negative: their codes are reversed, which is exact",
                     std::count(f.negative.begin(), f.negative.end(), 1), f.negative.size()));
  const ValueId constant = n.add_constant(turned(given, f.q, f.negative, turn));
  return n.emit_quantizer(Op::dequantize, constant, positive(f.q, f.negative, turn));
}

Result<ValueId> emit_quantize(NodeContext& n, ValueId v, FileQuantizer f) {
  if (f.negative.empty()) return n.emit_quantizer(Op::quantize, v, std::move(f.q));
  OCTAVO_TRY(const ValueId codes, n.emit_quantizer(Op::quantize, v, positive(f.q, f.negative, whole_range(f))));
  return turned_at_run_time(n, codes, f);
}

DType scale_type(NodeContext& n, std::size_t scale) {
  const DType type = n.declared(scale);
  const bool half = type == DType::f16 || type == DType::bf16;
  return ir::is_small_float(type) || (half && !n.importer().options().round_to_scale_type) ? DType::f32 : type;
}

bool params_known(const NodeContext& n, std::size_t scale, std::size_t zero_point) {
  return n.constant(scale) && (!n.has(zero_point) || n.constant(zero_point));
}

Status check_code_type(NodeContext& n, DType type, bool allow_s32) {
  if (ir::is_int8(type) || (allow_s32 && type == DType::s32)) return {};
  return n.unsupported("codes of type {}: only int8 and uint8{} are supported; quantize to 8 bits", ir::name_of(type),
                       allow_s32 ? " (and int32 into DequantizeLinear)" : "");
}

Result<FileQuantizer> read_quantizer(NodeContext& n, const QuantParams& p) {
  const Tensor* scale = n.constant(p.scale);
  const Tensor* zero = n.constant(p.zero_point);
  if (!scale || (n.has(p.zero_point) && !zero)) {
    return n.unsupported("scale \"{}\" or its zero point is computed at run time; it must be constant here", n.input_name(p.scale));
  }
  if (!ir::is_float(scale->dtype()))
    return n.bad("scale \"{}\" is {}, needs a float type", n.input_name(p.scale), ir::to_string(scale->type()));
  FileQuantizer read;
  Quantizer& q = read.q;
  q.type = zero && !p.type_given ? zero->dtype() : p.type;
  if (zero && zero->dtype() != q.type) {
    return n.bad("the zero point is {}, the codes are {}", ir::name_of(zero->dtype()), ir::name_of(q.type));
  }
  OCTAVO_CHECK(check_code_type(n, q.type, p.type_given));
  q.arith = scale_type(n, p.scale);
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
    if (!std::isfinite(s) || s == 0) {
      return n.bad(
          "scale \"{}\"{} is {}; a scale must be finite and not 0. Quantize again; a scale of 0 usually means that calibration saw "
          "only zeros",
          n.input_name(p.scale), q.per_tensor() ? "" : fmt::format(" of channel {}", c), s);
    }
    q.scale.push_back(s);
    q.zero_point.push_back(zp);
    if (s < 0) read.negative.resize(static_cast<std::size_t>(entries), 0), read.negative[static_cast<std::size_t>(c)] = 1;
  }
  if (substituted) {
    n.note(fmt::format("scale \"{}\" is 0 for {} of {} channels, which hold only zeros; 1 is used instead", n.input_name(p.scale),
                       substituted, entries));
  }
  return read;
}

Result<ValueId> dequantized(NodeContext& n, std::size_t codes, std::size_t scale, std::size_t zero_point, std::int64_t axis) {
  OCTAVO_TRY(FileQuantizer f, read_quantizer(n, {.scale = scale,
                                                 .zero_point = zero_point,
                                                 .type = n.type(codes).dtype,
                                                 .type_given = true,
                                                 .axis = axis,
                                                 .shape = n.shape(codes),
                                                 .data = n.in(codes)}));
  f.q.arith = DType::f32;  // QLinear operators do not round between their steps
  return emit_dequantize(n, n.in(codes), std::move(f));
}

Result<ValueId> quantized(NodeContext& n, ValueId v, std::size_t scale, std::size_t zero_point, std::int64_t axis) {
  OCTAVO_TRY(FileQuantizer f,
             read_quantizer(n, {.scale = scale, .zero_point = zero_point, .axis = axis, .shape = n.shape_of(v), .data = v}));
  f.q.arith = DType::f32;
  return emit_quantize(n, v, std::move(f));
}

}  // namespace octavo::onnx
