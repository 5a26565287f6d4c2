// softmax and the normalizations that depend on their data. All in fp32; sums in row-major order, those of softmax and of the statistics in
// the blocks of sums.h:
//   softmax      e_i = exp(x_i - max), y_i = e_i / sum(e);     log_softmax  y_i = (x_i - max) - log(sum(e))
//   instance/layer norm   mean = sum(x)/n, var = sum fma(d, d, .)/n with d = x - mean, y = fma(d * (1 / sqrt(var + epsilon)),
//   scale, bias) lrn          y = x / pow(fma(alpha / size, sum fma(x, x, .) over the channel window, bias), beta)
#include <cmath>
#include <limits>

#include "program/math.h"
#include "reference/detail.h"
#include "reference/sums.h"

namespace octavo::reference {
namespace {

struct Statistics {
  float mean, inverse;
};
Statistics statistics(const float* x, std::int64_t n, float epsilon) {
  const float sum = sum_in_blocks(n, [&](float so_far, std::int64_t i) { return so_far + x[i]; });
  const float mean = sum / static_cast<float>(n);
  const float squares = sum_in_blocks(n, [&](float so_far, std::int64_t i) { return std::fma(x[i] - mean, x[i] - mean, so_far); });
  return {mean, 1.0F / std::sqrt(squares / static_cast<float>(n) + epsilon)};
}

std::vector<float> instance_norm(const Args& a, const std::vector<float>& x) {
  const auto epsilon = static_cast<float>(a.as<ir::InstanceNorm>().epsilon);
  const auto scale = floats(a.in[1]), bias = floats(a.in[2]);
  const std::int64_t channels = a.shape(0)[1], n = channels == 0 ? 0 : ir::dense_strides(a.shape(0))[1];
  std::vector<float> y(x.size());
  for (std::int64_t plane = 0; plane < a.shape(0)[0] * channels; ++plane) {
    const float* from = x.data() + plane * n;
    const Statistics s = statistics(from, n, epsilon);
    for (std::int64_t i = 0; i < n; ++i) {
      y[idx(plane * n + i)] = std::fma((from[i] - s.mean) * s.inverse, scale[idx(plane % channels)], bias[idx(plane % channels)]);
    }
  }
  return y;
}

std::vector<float> layer_norm(const Args& a, const std::vector<float>& x) {
  const auto epsilon = static_cast<float>(a.as<ir::LayerNorm>().epsilon);
  const Shape& shape = a.shape(0);
  const std::int64_t axis = a.as<ir::LayerNorm>().axis;
  const Shape inner(shape.begin() + axis, shape.end());
  const std::int64_t n = ir::count(inner);
  const auto scale = floats(a.in[1]);
  const auto bias = a.has(2) ? floats(a.in[2]) : std::vector<float>{};
  const std::vector<Ints> strides{broadcast_strides(a.shape(1), inner),
                                  a.has(2) ? broadcast_strides(a.shape(2), inner) : Ints(inner.size(), 0)};
  std::vector<float> y(x.size());
  for (std::int64_t from = 0; from < static_cast<std::int64_t>(x.size()); from += n) {
    const Statistics s = statistics(x.data() + from, n, epsilon);
    for_each_element(inner, strides, [&](std::int64_t i, const Ints& at) {
      const float normal = (x[idx(from + i)] - s.mean) * s.inverse;
      y[idx(from + i)] = bias.empty() ? normal * scale[idx(at[0])] : std::fma(normal, scale[idx(at[0])], bias[idx(at[1])]);
    });
  }
  return y;
}

std::vector<float> lrn(const Args& a, const std::vector<float>& x) {
  program::FloatOps m;
  const auto& facts = a.as<ir::LocalResponse>();
  const std::int64_t size = facts.size, channels = a.shape(0)[1];
  const float factor = static_cast<float>(facts.alpha) / static_cast<float>(size), base = static_cast<float>(facts.bias),
              beta = static_cast<float>(facts.beta);
  const std::int64_t inner = ir::dense_strides(a.shape(0))[1], before = (size - 1) / 2, after = size - 1 - before;
  std::vector<float> y(x.size());
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(x.size()); ++i) {
    const std::int64_t c = i / inner % channels;
    float squares = 0;
    for (std::int64_t k = std::max<std::int64_t>(0, c - before); k <= std::min(channels - 1, c + after); ++k) {
      const float v = x[idx(i + (k - c) * inner)];
      squares = std::fma(v, v, squares);
    }
    y[idx(i)] = x[idx(i)] / program::pow(m, std::fma(factor, squares, base), beta);
  }
  return y;
}

}  // namespace

Result<Tensors> eval_softmax(const Args& a) {
  program::FloatOps m;
  const Shape& shape = a.shape(0);
  const std::int64_t axis = a.as<ir::Along>().axis, extent = shape[idx(axis)];
  const std::int64_t inner = ir::dense_strides(shape)[idx(axis)], total = ir::count(shape);
  const auto x = floats(a.in[0]);
  std::vector<float> y(x.size());
  for (std::int64_t row = 0; total != 0 && row < total / extent; ++row) {
    const std::int64_t first = row / inner * extent * inner + row % inner;
    const auto at = [&](std::int64_t k) { return idx(first + k * inner); };
    float largest = -std::numeric_limits<float>::infinity();
    for (std::int64_t k = 0; k < extent; ++k) largest = x[at(k)] > largest ? x[at(k)] : largest;
    for (std::int64_t k = 0; k < extent; ++k) y[at(k)] = program::exp(m, x[at(k)] - largest);
    const float sum = sum_in_blocks(extent, [&](float so_far, std::int64_t k) { return so_far + y[at(k)]; });
    const float log_sum = program::log(m, sum);
    for (std::int64_t k = 0; k < extent; ++k) {
      y[at(k)] = a.n.op == Op::softmax ? y[at(k)] / sum : (x[at(k)] - largest) - log_sum;
    }
  }
  return Tensors{from_floats(y, a.out())};
}

Result<Tensors> eval_norm(const Args& a) {
  const auto x = floats(a.in[0]);
  switch (a.n.op) {
    case Op::instance_norm: return Tensors{from_floats(instance_norm(a, x), a.out())};
    case Op::layer_norm: return Tensors{from_floats(layer_norm(a, x), a.out())};
    default: return Tensors{from_floats(lrn(a, x), a.out())};
  }
}

}  // namespace octavo::reference
