// view, quantize, dequantize with known parameters, and their run-time forms. The scalar formulas are ir/quantizer.h's.
#include <cmath>

#include "ir/quantize_many.h"
#include "reference/detail.h"

namespace octavo::reference {
namespace {

/// Calls f(flat index, channel) in order; channel 0 when per tensor.
template <class F>
void for_each_channel(const Shape& shape, int axis, F&& f) {
  const std::int64_t total = ir::count(shape);
  const std::int64_t inner = axis < 0 ? 1 : ir::dense_strides(shape)[idx(axis)], channels = axis < 0 ? 1 : shape[idx(axis)];
  for (std::int64_t i = 0; i < total; ++i) f(idx(i), i / inner % channels);
}

Tensor quantized(const std::vector<float>& x, const ir::Quantizer& q, const TensorType& type) {
  if (q.arith == DType::f32 && ir::is_int8(type.dtype)) {
    Tensor out(type);
    const std::span<std::uint8_t> codes{reinterpret_cast<std::uint8_t*>(out.mutable_bytes().data()), x.size()};
    const std::size_t run = q.axis < 0 ? x.size() : idx(ir::dense_strides(type.shape)[idx(q.axis)]);
    const std::size_t channels = q.axis < 0 ? 1 : idx(type.shape[idx(q.axis)]);
    for (std::size_t i = 0, c = 0; i < x.size(); i += run, c = c + 1 == channels ? 0 : c + 1) {
      const auto channel = static_cast<std::int64_t>(c);
      ir::quantize_many(std::span(x).subspan(i, run), q.scale_at(channel), q.zero_at(channel), static_cast<std::int32_t>(q.lo()),
                        static_cast<std::int32_t>(q.hi()), codes.subspan(i, run));
    }
    return out;
  }
  std::vector<std::int64_t> codes(x.size());
  const std::int64_t lo = q.lo(), hi = q.hi();
  for_each_channel(type.shape, q.axis, [&](std::size_t i, std::int64_t c) {
    codes[i] = ir::quantize_one(x[i], q.scale_at(c), q.zero_at(c), lo, hi, q.arith);
  });
  return from_integers(codes, type);
}

/// The quantizer that run-time scale and zero point tensors describe.
ir::Quantizer runtime_quantizer(const Args& a, DType codes) {
  ir::Quantizer q;
  q.type = codes;
  q.scale = floats(a.in[1]);
  q.zero_point.clear();
  for (const std::int64_t z : integers(a.in[2])) q.zero_point.push_back(static_cast<std::int32_t>(z));
  q.axis = q.scale.size() == 1 ? -1 : static_cast<int>(a.as<ir::Along>().axis);
  const DType t = a.in[1].dtype();
  q.arith = t == DType::f16 || t == DType::bf16 ? t : DType::f32;
  return q;
}

/// The range is widened to hold 0; s = (max - min) / 255, 1 when that is 0; zp = clamp(rne(-min / s)).
Tensors dynamic(const Args& a) {
  const auto x = floats(a.in[0]);
  float lo = 0, hi = 0;
  for (const float v : x) {
    lo = v < lo ? v : lo;
    hi = v > hi ? v : hi;
  }
  const float range = (hi - lo) / 255.0F, s = range > 0 ? range : 1.0F;
  const std::int32_t zp = ir::quantize_one(0.0F - lo, s, 0, 0, 255);
  Tensor zero(a.out(2));
  zero.mutable_data<std::uint8_t>()[0] = static_cast<std::uint8_t>(zp);
  return {quantized(x, ir::per_tensor(DType::u8, s, zp), a.out(0)), Tensor::scalar<float>(s), zero};
}

}  // namespace

Result<Tensors> eval_quantization(const Args& a) {
  switch (a.n.op) {
    case Op::view: {
      const ir::Quantizer& q = *a.n.quantizer;
      const auto x = floats(a.in[0]);
      std::vector<float> y(x.size());
      for_each_channel(a.out().shape, q.axis, [&](std::size_t i, std::int64_t c) { y[i] = ir::view_one(q, x[i], c); });
      return Tensors{from_floats(y, a.out())};
    }
    case Op::quantize: return Tensors{quantized(floats(a.in[0]), *a.n.quantizer, a.out())};
    case Op::dequantize: return Tensors{decode(a.in[0], *a.n.quantizer, a.out().dtype)};
    case Op::quantize_rt: return Tensors{quantized(floats(a.in[0]), runtime_quantizer(a, a.out().dtype), a.out())};
    case Op::dequantize_rt: return Tensors{decode(a.in[0], runtime_quantizer(a, a.in[0].dtype()), a.out().dtype)};
    default: return dynamic(a);
  }
}

}  // namespace octavo::reference
