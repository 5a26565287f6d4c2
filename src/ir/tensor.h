// Element types, shapes and constant tensors.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::ir {

/// The last two rows only store (ir/small_types.h): no operator computes in them.
enum class DType : std::uint8_t {
  f32,
  f16,
  bf16,
  f64,
  s8,
  u8,
  s16,
  u16,
  s32,
  u32,
  s64,
  u64,
  boolean,
  s4,
  u4,
  s2,
  u2,
  f8e4m3fn,
  f8e4m3fnuz,
  f8e5m2,
  f8e5m2fnuz,
  f8e8m0,
  f4e2m1
};

[[nodiscard]] std::size_t size_of(DType type);       ///< bytes of one element
[[nodiscard]] std::string_view name_of(DType type);  ///< "f32", "s8", ... as in the text form
[[nodiscard]] bool parse_dtype(std::string_view text, DType& out);
[[nodiscard]] inline bool is_float(DType t) {
  return t <= DType::f64;
}
[[nodiscard]] inline bool is_int8(DType t) {
  return t == DType::s8 || t == DType::u8;
}

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::s8;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<std::int16_t> {
  static constexpr DType value = DType::s16;
};
template <>
struct DTypeOf<std::uint16_t> {
  static constexpr DType value = DType::u16;
};  // also f16, bf16 bits
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::s32;
};
template <>
struct DTypeOf<std::uint32_t> {
  static constexpr DType value = DType::u32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::s64;
};
template <>
struct DTypeOf<std::uint64_t> {
  static constexpr DType value = DType::u64;
};

/// Dimensions, outermost first, in ONNX order (images: N, C, H, W). All are known: symbolic ones are bound before import.
using Shape = std::vector<std::int64_t>;
[[nodiscard]] std::int64_t count(const Shape& shape);     ///< number of elements; 1 for rank 0
[[nodiscard]] std::string to_string(const Shape& shape);  ///< "[1,3,224,224]"
[[nodiscard]] Shape dense_strides(const Shape& shape);    ///< row-major, in elements

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;
  bool operator==(const TensorType&) const = default;
};
[[nodiscard]] std::string to_string(const TensorType& type);  ///< "f32[1,3,224,224]"

struct BlockCodes;  // ir/block_codes.h

/// A dense row-major tensor. Copies share the bytes; call `mutable_data` only on a tensor that nobody else holds.
class Tensor {
 public:
  Tensor() = default;
  /// Zero-filled.
  explicit Tensor(TensorType type);
  Tensor(DType dtype, Shape shape) : Tensor(TensorType{dtype, std::move(shape)}) {}
  template <class T>
  [[nodiscard]] static Tensor of(Shape shape, const std::vector<T>& values) {
    Tensor t(DTypeOf<T>::value, std::move(shape));
    assert(static_cast<std::size_t>(t.size()) == values.size());
    for (std::size_t i = 0; i < values.size(); ++i) t.mutable_data<T>()[i] = values[i];
    return t;
  }
  template <class T>
  [[nodiscard]] static Tensor scalar(T value) {
    return of<T>({}, {value});
  }

  [[nodiscard]] const TensorType& type() const { return type_; }
  [[nodiscard]] DType dtype() const { return type_.dtype; }
  [[nodiscard]] const Shape& shape() const { return type_.shape; }
  [[nodiscard]] std::int64_t size() const { return count(type_.shape); }
  [[nodiscard]] bool empty() const { return bytes_ == nullptr; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {bytes_->data(), bytes_->size()}; }
  [[nodiscard]] std::span<std::byte> mutable_bytes() {
    forget_codes();
    return {bytes_->data(), bytes_->size()};
  }

  template <class T>
  [[nodiscard]] std::span<const T> data() const {
    assert(sizeof(T) == size_of(type_.dtype));
    return {reinterpret_cast<const T*>(bytes_->data()), static_cast<std::size_t>(size())};
  }
  template <class T>
  [[nodiscard]] std::span<T> mutable_data() {
    assert(sizeof(T) == size_of(type_.dtype));
    forget_codes();
    return {reinterpret_cast<T*>(bytes_->data()), static_cast<std::size_t>(size())};
  }
  /// Of a matrix of floats, or of the weights of a 1x1 convolution, [columns, rows, 1, 1]: the codes that it was computed from; null: not known.
  /// Kernels may keep the codes instead. They are forgotten when elements are written.
  [[nodiscard]] const std::shared_ptr<const BlockCodes>& codes() const { return codes_; }
  void set_codes(std::shared_ptr<const BlockCodes> codes) { codes_ = std::move(codes); }
  /// Same bytes under another shape with the same element count; without codes.
  [[nodiscard]] Tensor reshaped(Shape shape) const;
  /// A private copy of the bytes.
  [[nodiscard]] Tensor clone() const;
  /// Element i as double (any type; f16 and bf16 decoded). For shapes, attributes and printing, not for arithmetic.
  [[nodiscard]] double at(std::int64_t i) const;
  /// All elements as int64 (for shape-like tensors).
  [[nodiscard]] std::vector<std::int64_t> as_ints() const;
  /// Converts any float type to f32, exactly (f64 rounds).
  [[nodiscard]] Tensor to_f32() const;

 private:
  void forget_codes() {
    if (codes_ != nullptr) codes_.reset();
  }

  TensorType type_;
  std::shared_ptr<std::vector<std::byte>> bytes_;
  std::shared_ptr<const BlockCodes> codes_;
};

[[nodiscard]] bool same_bytes(const Tensor& a, const Tensor& b);

}  // namespace octavo::ir
