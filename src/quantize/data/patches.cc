#include "quantize/data/patches.h"

#include <fmt/format.h>

#include <algorithm>

namespace octavo::quantize {
namespace {

/// A step of splitmix64: places are spread like random ones, and are the same in every run and on every machine.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace

RowLayer::RowLayer(const onnx::Layer& l, const ir::Shape& input) : input_(input), weight_shape_(l.weight_values.shape()) {
  const ir::Shape& w = weight_shape_;
  if (l.op == "ConvTranspose") {
    refused_ = "ConvTranspose is not corrected";
    return;
  }
  if (l.op == "Conv") {
    conv_ = true;
    const std::size_t spatial = w.size() - 2;
    if (input.size() != w.size() || l.group < 1 || w[0] % l.group != 0 || input[1] != w[1] * l.group) {
      refused_ = fmt::format("its weights {} do not fit its input {}", ir::to_string(w), ir::to_string(input));
      return;
    }
    groups_ = l.group;
    in_channels_ = w[1];
    depth_ = ir::count(w) / w[0];
    channels_ = w[0] / l.group;
    places_ = input[0];
    for (std::size_t d = 0; d < spatial; ++d) {
      const std::int64_t size = input[2 + d], reach = l.dilations[d] * (w[2 + d] - 1) + 1;
      std::int64_t before = l.pads[d], after = l.pads[spatial + d];
      if (l.auto_pad == "SAME_UPPER" || l.auto_pad == "SAME_LOWER") {
        const std::int64_t all =
            std::max<std::int64_t>(0, ((size + l.strides[d] - 1) / l.strides[d] - 1) * l.strides[d] + reach - size);
        before = l.auto_pad == "SAME_UPPER" ? all / 2 : all - all / 2;
        after = all - before;
      } else if (l.auto_pad == "VALID") {
        before = after = 0;
      }
      kernel_.push_back(w[2 + d]);
      strides_.push_back(l.strides[d]);
      dilations_.push_back(l.dilations[d]);
      begin_.push_back(before);
      out_.push_back((size + before + after - reach) / l.strides[d] + 1);
      places_ *= out_.back();
    }
    if (places_ <= 0) refused_ = "it has no output";
    return;
  }
  transposed_ = l.transposed;
  if (!l.plain || w.size() != 2 || input.empty()) {
    refused_ = l.plain ? "its weights are no matrix" : "it has alpha, beta, a transposed operand or a bias that is computed";
    return;
  }
  depth_ = w[transposed_ ? 1 : 0];
  channels_ = w[transposed_ ? 0 : 1];
  places_ = ir::count(input) / std::max<std::int64_t>(depth_, 1);
  if (input.back() != depth_ || places_ <= 0)
    refused_ = fmt::format("its weights {} do not fit its input {}", ir::to_string(w), ir::to_string(input));
}

void RowLayer::row(std::span<const float> input, std::int64_t place, std::span<float> out) const {
  if (!conv_) {
    std::copy_n(input.begin() + static_cast<std::ptrdiff_t>(place * depth_), depth_, out.begin());
    return;
  }
  const std::size_t spatial = kernel_.size();
  ir::Shape at(spatial);
  for (std::size_t d = spatial; d-- > 0;) {
    at[d] = place % out_[d] * strides_[d] - begin_[d];
    place /= out_[d];
  }
  const std::int64_t taps = ir::count(kernel_);
  std::vector<std::int64_t> offset(static_cast<std::size_t>(taps));  // within a channel; -1: outside
  std::int64_t plane = 1;
  for (std::size_t d = 0; d < spatial; ++d) plane *= input_[2 + d];
  for (std::int64_t t = 0; t < taps; ++t) {
    std::int64_t rest = t, where = 0, step = 1;
    for (std::size_t d = spatial; d-- > 0;) {
      const std::int64_t x = at[d] + rest % kernel_[d] * dilations_[d];
      rest /= kernel_[d];
      where = where < 0 || x < 0 || x >= input_[2 + d] ? -1 : where + x * step;
      step *= input_[2 + d];
    }
    offset[static_cast<std::size_t>(t)] = where;
  }
  const float* base = input.data() + static_cast<std::size_t>(place * groups_ * in_channels_ * plane);  // `place` is the image now
  std::size_t o = 0;
  for (std::int64_t c = 0; c < groups_ * in_channels_; ++c) {
    for (const std::int64_t x : offset) out[o++] = x < 0 ? 0.0F : base[c * plane + x];
  }
}

std::size_t RowLayer::weight_index(std::int64_t group, std::int64_t k, std::int64_t m) const {
  if (conv_ || transposed_) return static_cast<std::size_t>((group * channels_ + m) * depth_ + k);
  return static_cast<std::size_t>(k * channels_ + m);
}

std::vector<float> RowLayer::weights(const ir::Tensor& values) const {
  std::vector<float> out(static_cast<std::size_t>(groups_ * depth_ * channels_));
  const auto w = values.data<float>();
  std::size_t o = 0;
  for (std::int64_t g = 0; g < groups_; ++g) {
    for (std::int64_t k = 0; k < depth_; ++k) {
      for (std::int64_t m = 0; m < channels_; ++m) out[o++] = w[weight_index(g, k, m)];
    }
  }
  return out;
}

ir::Tensor RowLayer::codes(const std::vector<std::int8_t>& by_group) const {
  ir::Tensor out(ir::DType::s8, weight_shape_);
  std::size_t i = 0;
  for (std::int64_t g = 0; g < groups_; ++g) {
    for (std::int64_t k = 0; k < depth_; ++k) {
      for (std::int64_t m = 0; m < channels_; ++m) out.mutable_data<std::int8_t>()[weight_index(g, k, m)] = by_group[i++];
    }
  }
  return out;
}

ir::Tensor RowLayer::values(const std::vector<std::int8_t>& by_group, const std::vector<float>& scale) const {
  ir::Tensor out(ir::DType::f32, weight_shape_);
  std::size_t i = 0;
  for (std::int64_t g = 0; g < groups_; ++g) {
    for (std::int64_t k = 0; k < depth_; ++k) {
      for (std::int64_t m = 0; m < channels_; ++m)
        out.mutable_data<float>()[weight_index(g, k, m)] =
            static_cast<float>(by_group[i++]) * scale[static_cast<std::size_t>(g * channels_ + m)];
    }
  }
  return out;
}

std::vector<Rows> rows_for(const std::vector<RowLayer>& layers, std::size_t samples, std::int64_t bytes) {
  constexpr std::int64_t kMost = 3072, kFew = 1024, kLeast = 384;
  const auto wanted = [&](const RowLayer& l, std::int64_t floats) {
    if (!l.refused().empty()) return std::int64_t{0};
    const std::int64_t rows = std::clamp(floats / l.row_length(), kLeast, std::min(kMost, std::max(kFew, 8 * l.depth())));
    const auto n = static_cast<std::int64_t>(samples);
    return std::min(l.places(), std::max<std::int64_t>(1, (rows + n - 1) / n));
  };
  std::int64_t floats = std::int64_t{1} << 22;
  const auto total = [&] {
    std::int64_t sum = 0;
    for (const RowLayer& l : layers) sum += wanted(l, floats) * static_cast<std::int64_t>(samples) * l.row_length() * 4;
    return sum;
  };
  while (floats > 1024 && total() > bytes) floats /= 2;
  std::vector<Rows> out;
  for (const RowLayer& l : layers) {
    Rows r;
    r.per_sample = wanted(l, floats);
    r.count = r.per_sample * static_cast<std::int64_t>(samples);
    r.length = l.row_length();
    r.values.resize(static_cast<std::size_t>(r.count * r.length));
    out.push_back(std::move(r));
  }
  return out;
}

void take_rows(const RowLayer& layer, std::size_t layer_number, std::size_t sample, std::span<const float> input, Rows& rows) {
  for (std::int64_t j = 0; j < rows.per_sample; ++j) {
    const std::uint64_t seed = mixed(mixed(layer_number + 1) ^ mixed(sample * 0x100000001b3U + static_cast<std::uint64_t>(j)));
    // One place in each of per_sample equal parts of the tensor.
    const std::int64_t first = j * layer.places() / rows.per_sample, last = (j + 1) * layer.places() / rows.per_sample;
    const std::int64_t place =
        first + static_cast<std::int64_t>(seed % static_cast<std::uint64_t>(std::max<std::int64_t>(1, last - first)));
    layer.row(input, place, rows.at(static_cast<std::int64_t>(sample) * rows.per_sample + j));
  }
}

}  // namespace octavo::quantize
