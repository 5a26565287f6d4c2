// What weighted layers see: rows of their input as the layer multiplies them, sampled at the same places in every run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/tensor.h"
#include "onnx/edit/layers.h"

namespace octavo::quantize {

/// A Conv, Gemm or MatMul as a product of rows: y[group][m] = sum over k of x[group][k] * w[group][m][k]. A row is what one place of
/// the output reads: for a Conv the elements under its kernel (0 outside of the picture).
class RowLayer {
 public:
  /// `refused` says why a layer is no such product (ConvTranspose, a batch of matrices, alpha, ...), and is empty otherwise.
  RowLayer(const onnx::Layer& layer, const ir::Shape& input);

  [[nodiscard]] const std::string& refused() const { return refused_; }
  [[nodiscard]] std::int64_t groups() const { return groups_; }
  [[nodiscard]] std::int64_t depth() const { return depth_; }        ///< k of one group
  [[nodiscard]] std::int64_t channels() const { return channels_; }  ///< m of one group
  [[nodiscard]] std::int64_t row_length() const { return groups_ * depth_; }
  [[nodiscard]] std::int64_t places() const { return places_; }  ///< rows in one input tensor

  /// The row of one place, group by group; `input` is the dense tensor.
  void row(std::span<const float> input, std::int64_t place, std::span<float> out) const;
  /// Weights as [group][k][m], and back into a tensor of the layer's shape (f32 values, or s8 codes).
  [[nodiscard]] std::vector<float> weights(const ir::Tensor& values) const;
  /// Codes times the scale of their channel, [group][m], as a tensor.
  [[nodiscard]] ir::Tensor values(const std::vector<std::int8_t>& by_group, const std::vector<float>& scale) const;
  [[nodiscard]] ir::Tensor codes(const std::vector<std::int8_t>& by_group) const;

 private:
  [[nodiscard]] std::size_t weight_index(std::int64_t group, std::int64_t k, std::int64_t m) const;

  std::string refused_;
  ir::Shape input_, weight_shape_;
  bool conv_ = false, transposed_ = false;
  std::int64_t groups_ = 1, depth_ = 0, channels_ = 0, places_ = 0, in_channels_ = 0;
  ir::Shape kernel_, out_, strides_, dilations_, begin_;
};

/// Rows of one layer from all samples, as one matrix [rows][row_length].
struct Rows {
  std::int64_t per_sample = 0, count = 0, length = 0;
  std::vector<float> values;
  [[nodiscard]] std::span<float> at(std::int64_t row) {
    return {values.data() + static_cast<std::size_t>(row * length), static_cast<std::size_t>(length)};
  }
  [[nodiscard]] std::span<const float> at(std::int64_t row) const {
    return {values.data() + static_cast<std::size_t>(row * length), static_cast<std::size_t>(length)};
  }
};

/// How many rows of each layer are kept, so that all matrices together have at most `bytes`: at least one a sample.
[[nodiscard]] std::vector<Rows> rows_for(const std::vector<RowLayer>& layers, std::size_t samples, std::int64_t bytes);
/// Fills the rows of one sample; the places depend on the layer's number and the sample's only.
void take_rows(const RowLayer& layer, std::size_t layer_number, std::size_t sample, std::span<const float> input, Rows& rows);

}  // namespace octavo::quantize
