#include "ir/tensor.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/half.h"
#include "base/whole_number.h"
#include "ir/small_types.h"

namespace octavo::ir {
namespace {

struct DTypeInfo {
  DType type;
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array kTypes{
    DTypeInfo{DType::f32, "f32", 4},
    DTypeInfo{DType::f16, "f16", 2},
    DTypeInfo{DType::bf16, "bf16", 2},
    DTypeInfo{DType::f64, "f64", 8},
    DTypeInfo{DType::s8, "s8", 1},
    DTypeInfo{DType::u8, "u8", 1},
    DTypeInfo{DType::s16, "s16", 2},
    DTypeInfo{DType::u16, "u16", 2},
    DTypeInfo{DType::s32, "s32", 4},
    DTypeInfo{DType::u32, "u32", 4},
    DTypeInfo{DType::s64, "s64", 8},
    DTypeInfo{DType::u64, "u64", 8},
    DTypeInfo{DType::boolean, "bool", 1},
    DTypeInfo{DType::s4, "s4", 1},
    DTypeInfo{DType::u4, "u4", 1},
    DTypeInfo{DType::s2, "s2", 1},
    DTypeInfo{DType::u2, "u2", 1},
    DTypeInfo{DType::f8e4m3fn, "f8e4m3fn", 1},
    DTypeInfo{DType::f8e4m3fnuz, "f8e4m3fnuz", 1},
    DTypeInfo{DType::f8e5m2, "f8e5m2", 1},
    DTypeInfo{DType::f8e5m2fnuz, "f8e5m2fnuz", 1},
    DTypeInfo{DType::f8e8m0, "f8e8m0", 1},
    DTypeInfo{DType::f4e2m1, "f4e2m1", 1},
};

}  // namespace

std::size_t size_of(DType type) {
  return kTypes[static_cast<std::size_t>(type)].bytes;
}
std::string_view name_of(DType type) {
  return kTypes[static_cast<std::size_t>(type)].name;
}

bool parse_dtype(std::string_view text, DType& out) {
  for (const DTypeInfo& row : kTypes) {
    if (row.name == text) {
      out = row.type;
      return true;
    }
  }
  return false;
}

std::int64_t count(const Shape& shape) {
  // An extent of 0 counts at once: the others may be so large that their product overflows.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return n;
}

std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) out += (i ? "," : "") + std::to_string(shape[i]);
  return out + "]";
}

Shape dense_strides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

std::string to_string(const TensorType& type) {
  return std::string(name_of(type.dtype)) + to_string(type.shape);
}

Tensor::Tensor(TensorType type)
    : type_(std::move(type)),
      bytes_(std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(count(type_.shape)) * size_of(type_.dtype))) {}

Tensor Tensor::reshaped(Shape shape) const {
  assert(count(shape) == size());
  Tensor t = *this;
  t.type_.shape = std::move(shape);
  t.codes_.reset();
  return t;
}

Tensor Tensor::clone() const {
  Tensor t = *this;
  t.bytes_ = std::make_shared<std::vector<std::byte>>(*bytes_);
  return t;
}

double Tensor::at(std::int64_t i) const {
  const auto k = static_cast<std::size_t>(i);
  switch (type_.dtype) {
    case DType::f32: return static_cast<double>(data<float>()[k]);
    case DType::f16: return static_cast<double>(f16_to_f32(data<std::uint16_t>()[k]));
    case DType::bf16: return static_cast<double>(bf16_to_f32(data<std::uint16_t>()[k]));
    case DType::f64: return data<double>()[k];
    case DType::s4:
    case DType::s2:
    case DType::s8: return data<std::int8_t>()[k];
    case DType::boolean:
    case DType::u4:
    case DType::u2:
    case DType::u8: return data<std::uint8_t>()[k];
    case DType::s16: return data<std::int16_t>()[k];
    case DType::u16: return data<std::uint16_t>()[k];
    case DType::s32: return data<std::int32_t>()[k];
    case DType::u32: return data<std::uint32_t>()[k];
    case DType::s64: return static_cast<double>(data<std::int64_t>()[k]);
    case DType::u64: return static_cast<double>(data<std::uint64_t>()[k]);
    default: return static_cast<double>(small_to_f32(type_.dtype, data<std::uint8_t>()[k]));
  }
  return 0;
}

std::vector<std::int64_t> Tensor::as_ints() const {
  std::vector<std::int64_t> out;
  out.reserve(static_cast<std::size_t>(size()));
  for (std::int64_t i = 0; i < size(); ++i) {
    out.push_back(type_.dtype == DType::s64 ? data<std::int64_t>()[static_cast<std::size_t>(i)] : whole_number(at(i)));
  }
  return out;
}

Tensor Tensor::to_f32() const {
  if (type_.dtype == DType::f32) return *this;
  Tensor out(DType::f32, type_.shape);
  auto to = out.mutable_data<float>();
  for (std::int64_t i = 0; i < size(); ++i) to[static_cast<std::size_t>(i)] = static_cast<float>(at(i));
  return out;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  if (a.empty() || b.empty()) return a.empty() == b.empty();
  if (a.type() != b.type()) return false;
  return a.bytes().empty() || std::memcmp(a.bytes().data(), b.bytes().data(), a.bytes().size()) == 0;
}

}  // namespace octavo::ir
