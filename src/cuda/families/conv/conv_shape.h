// A convolution as a matrix product, read off a region: what kernels need to know, in bytes and elements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/families/families.h"
#include "cuda/text/epilogue.h"

namespace octavo::cuda {

/// What products are of. Shapes and strides are in bytes, so that kernels which multiply 32 bytes at a time differ in the product alone.
/// f32: products of float32 as three products in tf32 (split.inc).
enum class ConvType : std::uint8_t { u8s8, bf16, f16, tf32, f32 };
[[nodiscard]] constexpr int bytes_of(ConvType t) {
  return t == ConvType::u8s8 ? 1 : t == ConvType::bf16 || t == ConvType::f16 ? 2 : 4;
}
[[nodiscard]] constexpr bool in_16_bits(ConvType t) {
  return t == ConvType::bf16 || t == ConvType::f16;
}
[[nodiscard]] std::string_view name_of(ConvType type);  ///< "f16"
/// The type that the stage, a convolution by constant weights, is computed in; nothing for floats of other types.
[[nodiscard]] std::optional<ConvType> conv_type(const region::Stage& stage);

struct ConvShape {
  ConvType type = ConvType::u8s8;
  std::int64_t batch = 1, in_h = 1, in_w = 1, channels = 1;  ///< channels: bytes of a pixel in one group
  std::int64_t out_channels = 1, out_h = 1, out_w = 1, groups = 1;
  std::int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1, pad_top = 0, pad_left = 0;
  std::int64_t image = 0, row = 0, pixel = 0;  ///< strides of the activations, bytes
  /// A third dimension, in front of rows: frames. kernel_h counts the kernel rows of all kernel_d frames, frame after frame; out_h counts those of
  /// one frame. What follows the sums sees each frame as an image.
  std::int64_t in_d = 1, out_d = 1, kernel_d = 1, stride_d = 1, dilation_d = 1, pad_front = 0, frame = 0;
  int fill = 0;               ///< the zero point's code: what pixels outside the image hold
  int skew = 0;               ///< bytes that the first activation lies behind a multiple of four
  std::int64_t aligned = 16;  ///< bytes that every pixel's first channel begins at a multiple of, at most 16
  int piece = 16;             ///< bytes that every run of channels can be copied by; below 4 only where rows are packed
  bool packed_rows = false;   ///< a kernel row's bytes are neighbours in memory, and its taps count as one
  bool open = false;          ///< the batch is an open extent (text/open.h)
  bool flat = false;          ///< 1x1 without strides over dense rows: pixel p is at p * pixel
  [[nodiscard]] std::int64_t pixels() const { return batch * out_d * out_h * out_w; }
  [[nodiscard]] std::int64_t taps() const { return packed_rows ? kernel_h : kernel_h * kernel_w; }
  [[nodiscard]] std::int64_t tap_bytes() const { return packed_rows ? kernel_w * channels : channels; }
  [[nodiscard]] std::int64_t tap_chunks() const { return (tap_bytes() + 15) / 16; }  ///< of 16 bytes
  /// Input rows and columns that so many output rows and columns read.
  [[nodiscard]] std::int64_t in_rows(std::int64_t rows) const { return (rows - 1) * stride_h + (kernel_h - 1) * dilation_h + 1; }
  [[nodiscard]] std::int64_t in_columns(std::int64_t columns) const {
    return (columns - 1) * stride_w + (kernel_w - 1) * dilation_w + 1;
  }
  /// Of the weight's first byte in ConvWeights::values; `byte`: of the pixel.
  [[nodiscard]] std::size_t place(std::int64_t out_channel, std::int64_t byte, std::int64_t y, std::int64_t x) const {
    const std::int64_t tap = packed_rows ? y : y * kernel_w + x;
    return static_cast<std::size_t>((out_channel * taps() + tap) * tap_bytes() + (packed_rows ? x * channels : 0) + byte);
  }
  [[nodiscard]] bool wide_offsets() const { return batch * image > INT32_MAX || pixels() * out_channels * 4 > INT32_MAX; }
};

/// Constant weights where the plan has them.
struct ConvFilter {
  region::TensorRef ref;
  ir::Tensor data;                  ///< of the buffer
  std::optional<std::int64_t> sum;  ///< Anchor::weight_sum: there is no data
  std::vector<std::int32_t> zero;   ///< Anchor::weight_zero
};

/// A convolution by constant weights, and what follows its sums. The setting of families that need no more.
struct ConvSetting {
  ConvShape shape;
  region::TensorRef input;
  ConvFilter filter;
  Tail tail;
  /// Bytes of activations that it reads and stores; operands that are one element a channel do not count.
  [[nodiscard]] double traffic() const;
};

/// A stage with a conv of one or two spatial dimensions, or with `frames` of three, an integer one or one of floats as `type` says; one dimension is
/// read as an image of one row. Error: why kernels cannot take it, with the values.
[[nodiscard]] Result<ConvSetting> read_conv(const region::Stage& stage, const region::Plan& plan, ConvType type = ConvType::u8s8,
                                            bool frames = false);

/// Weights less their zero points, or the bytes of floats (tf32: rounded to it), [channel][tap][byte of a tap], and what sums begin with so that (x - zx) counts.
struct ConvWeights {
  std::vector<std::int8_t> values;
  std::vector<std::int32_t> start;  ///< one a channel: -zx * sum of its weights
  double largest_sum = 0;           ///< bound of |sum (x - zx) * w| over channels
};
[[nodiscard]] ConvWeights read_weights(const ConvSetting& conv);
/// In the place of what is packed of weights that are not there (ConvWeights::values is empty): how it is packed.
[[nodiscard]] ir::Tensor layout_mark(std::initializer_list<std::int64_t> numbers);
/// The weight at an address: f32, f16 or bf16.
[[nodiscard]] float float_at(const void* p, ir::DType type);

}  // namespace octavo::cuda
