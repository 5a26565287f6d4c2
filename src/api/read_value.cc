// Reading what a region sees or has stored, through strides, broadcasts and codes, as the graph means it.
#include <cstring>

#include "api/check.h"
#include "ir/quantizer.h"

namespace octavo::api {
namespace {

using region::TensorRef;

/// Which dimensions of a broadcast reference carry the `wanted` elements; empty shape entries of 1 are dropped on both sides.
std::optional<std::vector<bool>> carried(const TensorRef& ref, const ir::Shape& wanted) {
  const std::int64_t count = ir::count(wanted);
  std::vector<bool> keep(ref.dims.size(), true);
  if (ir::count(ref.dims) == count) return keep;
  for (std::size_t k = 0; k < keep.size(); ++k) keep[k] = ref.strides[k] != 0;
  std::int64_t kept = 1;
  for (std::size_t k = 0; k < keep.size(); ++k) kept *= keep[k] ? ref.dims[k] : 1;
  if (kept == count) return keep;
  // An expanded value (stride 0 in itself) that is broadcast further: match the shapes from the innermost dimension.
  ir::Shape left;
  for (const std::int64_t d : wanted) {
    if (d != 1) left.push_back(d);
  }
  for (std::size_t k = ref.dims.size(); k-- > 0;) {
    const bool match = !left.empty() && left.back() == ref.dims[k];
    if (!match && ref.strides[k] != 0 && ref.dims[k] != 1) return std::nullopt;
    keep[k] = match;
    if (match) left.pop_back();
  }
  if (!left.empty()) return std::nullopt;
  return keep;
}

float decode(const ir::Quantizer& q, std::int64_t code, const ir::Shape& shape, std::int64_t flat) {
  std::int64_t channel = 0;
  if (!q.per_tensor()) {
    const auto axis = static_cast<std::size_t>(q.axis);
    std::int64_t inner = 1;
    for (std::size_t k = axis + 1; k < shape.size(); ++k) inner *= shape[k];
    channel = flat / inner % shape[axis];
  }
  return ir::dequantize_one(static_cast<std::int32_t>(code), q.scale_at(channel), q.zero_at(channel), q.arith);
}

}  // namespace

std::optional<ir::Tensor> read_value(const region::Memory& memory, const region::TensorRef& ref, const ir::TensorType& type) {
  const auto keep = carried(ref, type.shape);
  if (!keep) return std::nullopt;
  const bool decodes = ir::is_int8(ref.dtype) && type.dtype == ir::DType::f32;
  if (decodes && !ref.quantizer) return std::nullopt;
  if (!decodes && ref.dtype != type.dtype) return std::nullopt;
  ir::Tensor out(type);
  const std::size_t size = ir::size_of(ref.dtype);
  const std::byte* base = memory.at(ref);
  std::vector<std::int64_t> index(ref.dims.size(), 0);
  for (std::int64_t flat = 0; flat < out.size(); ++flat) {
    std::int64_t at = 0;
    for (std::size_t k = 0; k < index.size(); ++k) at += index[k] * ref.strides[k];
    const std::byte* from = base + at * static_cast<std::int64_t>(size);
    if (decodes) {
      const std::int64_t code = ref.dtype == ir::DType::u8 ? static_cast<std::int64_t>(static_cast<std::uint8_t>(*from))
                                                           : static_cast<std::int64_t>(static_cast<std::int8_t>(*from));
      out.mutable_data<float>()[static_cast<std::size_t>(flat)] = decode(*ref.quantizer, code, type.shape, flat);
    } else {
      std::memcpy(out.mutable_bytes().data() + static_cast<std::size_t>(flat) * size, from, size);
    }
    for (std::size_t k = index.size(); k-- > 0;) {
      if (!(*keep)[k]) continue;
      if (++index[k] < ref.dims[k]) break;
      index[k] = 0;
    }
  }
  return out;
}

}  // namespace octavo::api
