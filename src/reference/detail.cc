#include "reference/detail.h"

#include <cmath>

#include "base/half.h"
#include "ir/small_types.h"

namespace octavo::reference {
namespace {

template <class T, class To>
void widen(const Tensor& t, std::vector<To>& out) {
  const auto from = t.data<T>();
  for (std::size_t i = 0; i < from.size(); ++i) out[i] = static_cast<To>(from[i]);
}

template <class T>
void narrow(const std::vector<std::int64_t>& from, Tensor& t) {
  const auto to = t.mutable_data<T>();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<T>(from[i]);
}

}  // namespace

std::vector<float> floats(const Tensor& t) {
  std::vector<float> out(idx(t.size()));
  switch (t.dtype()) {
    case DType::f32: widen<float>(t, out); break;
    case DType::f64: widen<double>(t, out); break;
    case DType::f16:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = f16_to_f32(t.data<std::uint16_t>()[i]);
      break;
    case DType::bf16:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = bf16_to_f32(t.data<std::uint16_t>()[i]);
      break;
    case DType::u64: widen<std::uint64_t>(t, out); break;
    default: {
      if (ir::is_small_float(t.dtype())) {
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = ir::small_to_f32(t.dtype(), t.data<std::uint8_t>()[i]);
        break;
      }
      const auto wide = integers(t);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(wide[i]);
    }
  }
  return out;
}

Tensor from_floats(const std::vector<float>& values, const TensorType& type) {
  Tensor t(type);
  switch (type.dtype) {
    case DType::f16:
      for (std::size_t i = 0; i < values.size(); ++i) t.mutable_data<std::uint16_t>()[i] = f32_to_f16(values[i]);
      break;
    case DType::bf16:
      for (std::size_t i = 0; i < values.size(); ++i) t.mutable_data<std::uint16_t>()[i] = f32_to_bf16(values[i]);
      break;
    case DType::f64:
      for (std::size_t i = 0; i < values.size(); ++i) t.mutable_data<double>()[i] = static_cast<double>(values[i]);
      break;
    default:
      if (ir::is_small_float(type.dtype)) {
        for (std::size_t i = 0; i < values.size(); ++i) t.mutable_data<std::uint8_t>()[i] = ir::f32_to_small(type.dtype, values[i]);
        break;
      }
      std::copy(values.begin(), values.end(), t.mutable_data<float>().begin());
  }
  return t;
}

std::vector<std::int64_t> integers(const Tensor& t) {
  std::vector<std::int64_t> out(idx(t.size()));
  switch (t.dtype()) {
    case DType::s4:
    case DType::u4:
    case DType::s2:
    case DType::u2: {  // the low bits: what lies above them is not promised
      const std::int64_t span = ir::small_hi(t.dtype()) - ir::small_lo(t.dtype()) + 1;
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::int64_t low = t.data<std::uint8_t>()[i] & (span - 1);
        out[i] = low > ir::small_hi(t.dtype()) ? low - span : low;
      }
      break;
    }
    case DType::s8: widen<std::int8_t>(t, out); break;
    case DType::u8:
    case DType::boolean: widen<std::uint8_t>(t, out); break;
    case DType::s16: widen<std::int16_t>(t, out); break;
    case DType::u16: widen<std::uint16_t>(t, out); break;
    case DType::s32: widen<std::int32_t>(t, out); break;
    case DType::u32: widen<std::uint32_t>(t, out); break;
    case DType::u64: widen<std::uint64_t>(t, out); break;
    default: widen<std::int64_t>(t, out);
  }
  return out;
}

Tensor from_integers(const std::vector<std::int64_t>& values, const TensorType& type) {
  Tensor t(type);
  switch (type.dtype) {
    case DType::s8: narrow<std::int8_t>(values, t); break;
    case DType::u8: narrow<std::uint8_t>(values, t); break;
    case DType::boolean:
      for (std::size_t i = 0; i < values.size(); ++i) t.mutable_data<std::uint8_t>()[i] = values[i] != 0;
      break;
    case DType::s16: narrow<std::int16_t>(values, t); break;
    case DType::u16: narrow<std::uint16_t>(values, t); break;
    case DType::s32: narrow<std::int32_t>(values, t); break;
    case DType::u32: narrow<std::uint32_t>(values, t); break;
    case DType::u64: narrow<std::uint64_t>(values, t); break;
    case DType::s4:
    case DType::u4:
    case DType::s2:
    case DType::u2: {
      const std::int64_t span = ir::small_hi(type.dtype) - ir::small_lo(type.dtype) + 1;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::int64_t low = values[i] & (span - 1);
        t.mutable_data<std::int8_t>()[i] = static_cast<std::int8_t>(low > ir::small_hi(type.dtype) ? low - span : low);
      }
      break;
    }
    default: narrow<std::int64_t>(values, t);
  }
  return t;
}

Tensor decode(const Tensor& codes, const ir::Quantizer& q, DType type) {
  const auto from = integers(codes);
  std::vector<float> to(from.size());
  const std::int64_t inner = q.per_tensor() ? 1 : ir::dense_strides(codes.shape())[idx(q.axis)];
  const std::int64_t channels = q.per_tensor() ? 1 : codes.shape()[idx(q.axis)];
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::int64_t c = static_cast<std::int64_t>(i) / inner % channels;
    to[i] = ir::dequantize_one(static_cast<std::int32_t>(from[i]), q.scale_at(c), q.zero_at(c), q.arith);
  }
  return from_floats(to, {type, codes.shape()});
}

Result<std::vector<std::int16_t>> centred_codes(const Args& a, const Tensor& t, const ir::Quantizer& q) {
  const std::vector<float> values = floats(t);
  std::vector<std::int16_t> out(values.size());
  const std::int64_t inner = q.per_tensor() ? 1 : ir::dense_strides(t.shape())[idx(q.axis)];
  const std::int64_t channels = q.per_tensor() ? 1 : t.shape()[idx(q.axis)];
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t channel = static_cast<std::int64_t>(i) / inner % channels;
    const float s = q.scale_at(channel);
    const std::int32_t zp = q.zero_at(channel);
    // Nearest code; the product's rounding (to f16, say) may have moved the value by up to a step, so the neighbours are tried too.
    const auto nearest = static_cast<std::int32_t>(std::nearbyint(std::min(std::max(values[i] / s, -1024.0F), 1024.0F)));
    bool found = false;
    for (const std::int32_t d : {0, -1, 1}) {
      const std::int32_t code = nearest + d + zp;
      if (code < q.lo() || code > q.hi() || ir::dequantize_one(code, s, zp, q.arith) != values[i]) continue;
      out[i] = static_cast<std::int16_t>(nearest + d);
      found = true;
      break;
    }
    if (!found) {
      return a.error(ErrorKind::internal, "element {} of the input is {}, which is no value of {} (the grid analysis says it is)",
                     i, values[i], ir::to_string(q));
    }
  }
  return out;
}

Ints broadcast_strides(const Shape& operand, const Shape& out) {
  const Shape dense = ir::dense_strides(operand);
  Ints strides(out.size(), 0);
  const std::size_t shift = out.size() - operand.size();
  for (std::size_t d = 0; d < operand.size(); ++d) strides[d + shift] = operand[d] == 1 ? 0 : dense[d];
  return strides;
}

}  // namespace octavo::reference
