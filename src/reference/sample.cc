// grid_sample, roi_align, deform_conv, non_max_suppression, in fp32. Positions outside the image are treated as ONNX's text says.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/detail.h"

namespace octavo::reference {
namespace {

/// The coordinate thrown back at lo and hi until it lies between them.
float reflected(float x, float lo, float hi) {
  const float range = hi - lo;
  if (range <= 0) return lo;
  if (x < lo || x > hi) {
    const float over = x < lo ? lo - x : x - hi;
    const float turns = std::trunc(over / range), rest = over - turns * range;
    const bool even = std::fmod(turns, 2.0F) == 0;
    return (x < lo) == even ? lo + rest : hi - rest;
  }
  return x;
}

/// One dimension of a sample: source indices (-1: a zero) and their weights.
struct Taps {
  Ints at;
  std::vector<float> weight;
};

struct GridSampler {
  ir::Interpolation mode;
  ir::Outside padding;
  bool align;

  [[nodiscard]] Taps taps(float normal, std::int64_t extent) const {
    const auto length = static_cast<float>(extent);
    float x = align ? (normal + 1) / 2 * (length - 1) : ((normal + 1) * length - 1) / 2;
    if (std::isnan(x)) x = -1;
    x = std::min(std::max(x, -1.0e9F), 1.0e9F);  // far outside is outside
    if (mode == ir::Interpolation::nearest) x = std::nearbyint(x);
    const float lo = align ? 0.0F : -0.5F, hi = align ? length - 1 : length - 0.5F;
    if (x < lo || x > hi) {
      // A cubic's taps are clamped one by one (PyTorch, ONNX Runtime): its position stays.
      if (padding == ir::Outside::border && mode != ir::Interpolation::cubic) x = std::min(std::max(x, 0.0F), length - 1);
      if (padding == ir::Outside::reflection) x = reflected(x, lo, hi);
    }
    const auto source = [&](std::int64_t i) -> std::int64_t {
      if (i >= 0 && i < extent) return i;
      if (padding == ir::Outside::zeros) return -1;
      if (padding == ir::Outside::border) return std::clamp<std::int64_t>(i, 0, extent - 1);
      return std::clamp<std::int64_t>(static_cast<std::int64_t>(reflected(static_cast<float>(i), lo, hi)), 0, extent - 1);
    };
    if (mode == ir::Interpolation::nearest) return {{source(static_cast<std::int64_t>(std::trunc(x)))}, {1.0F}};
    const auto base = static_cast<std::int64_t>(std::floor(x));
    const float t = x - static_cast<float>(base);
    if (mode == ir::Interpolation::linear) return {{source(base), source(base + 1)}, {1 - t, t}};
    constexpr float kA = -0.75F;
    const auto outer = [](float d) { return ((kA * d - 5 * kA) * d + 8 * kA) * d - 4 * kA; };
    const auto inner = [](float d) { return ((kA + 2) * d - (kA + 3)) * d * d + 1; };
    return {{source(base - 1), source(base), source(base + 1), source(base + 2)},
            {outer(t + 1), inner(t), inner(1 - t), outer(2 - t)}};
  }
};

Tensors grid_sample(const Args& a) {
  const Shape& x = a.shape(0);
  const std::size_t spatial = x.size() - 2;
  const auto& facts = a.as<ir::GridSample>();
  const GridSampler sampler{facts.mode, facts.padding, facts.align_corners};
  const auto data = floats(a.in[0]), grid = floats(a.in[1]);
  const std::int64_t plane = ir::count(Shape(x.begin() + 2, x.end())), channels = x[1];
  const Shape& out = a.out().shape;
  const std::int64_t points = ir::count(Shape(out.begin() + 2, out.end()));
  std::vector<float> y(idx(ir::count(out)));
  for (std::int64_t n = 0; n < x[0]; ++n) {
    for (std::int64_t point = 0; point < points; ++point) {
      Ints at{0};
      std::vector<float> weight{1.0F};
      for (std::size_t d = 0; d < spatial; ++d) {  // the grid's last axis is x first: the innermost dimension
        const Taps t = sampler.taps(grid[idx((n * points + point)) * spatial + (spatial - 1 - d)], x[d + 2]);
        Ints wider;
        std::vector<float> weights;
        for (std::size_t i = 0; i < at.size(); ++i) {
          for (std::size_t j = 0; j < t.at.size(); ++j) {
            wider.push_back(at[i] < 0 || t.at[j] < 0 ? -1 : at[i] * x[d + 2] + t.at[j]);
            weights.push_back(weight[i] * t.weight[j]);
          }
        }
        at = std::move(wider);
        weight = std::move(weights);
      }
      for (std::int64_t c = 0; c < channels; ++c) {
        float sum = 0;
        for (std::size_t i = 0; i < at.size(); ++i) {
          if (at[i] >= 0) sum = std::fma(data[idx((n * channels + c) * plane + at[i])], weight[i], sum);
        }
        y[idx((n * channels + c) * points + point)] = sum;
      }
    }
  }
  return {from_floats(y, a.out())};
}

/// Four neighbours of (y, x) in an image, with their weights.
struct Neighbours {
  std::int64_t at[4] = {0, 0, 0, 0};
  float weight[4] = {0, 0, 0, 0};
};

Neighbours roi_neighbours(float y, float x, std::int64_t height, std::int64_t width) {
  Neighbours out;
  if (!(y >= -1 && y <= static_cast<float>(height) && x >= -1 && x <= static_cast<float>(width))) return out;
  y = std::max(y, 0.0F);
  x = std::max(x, 0.0F);
  std::int64_t y0 = static_cast<std::int64_t>(y), x0 = static_cast<std::int64_t>(x), y1 = y0 + 1, x1 = x0 + 1;
  if (y0 >= height - 1) {
    y0 = y1 = height - 1;
    y = static_cast<float>(y0);
  }
  if (x0 >= width - 1) {
    x0 = x1 = width - 1;
    x = static_cast<float>(x0);
  }
  const float ly = y - static_cast<float>(y0), lx = x - static_cast<float>(x0), hy = 1 - ly, hx = 1 - lx;
  const std::int64_t at[4] = {y0 * width + x0, y0 * width + x1, y1 * width + x0, y1 * width + x1};
  const float weight[4] = {hy * hx, hy * lx, ly * hx, ly * lx};
  std::copy_n(at, 4, out.at);
  std::copy_n(weight, 4, out.weight);
  return out;
}

Result<Tensors> roi_align(const Args& a) {
  const Shape &x = a.shape(0), &out = a.out().shape;
  const auto data = floats(a.in[0]), rois = floats(a.in[1]);
  const Ints batches = integers(a.in[2]);
  const auto& facts = a.as<ir::RoiAlign>();
  const auto scale = static_cast<float>(facts.spatial_scale);
  const bool half = facts.half_pixel, largest = facts.mode == ir::RoiPooling::max;
  const std::int64_t ratio = facts.sampling_ratio;
  std::vector<float> y(idx(ir::count(out)));
  for (std::int64_t r = 0; r < out[0]; ++r) {
    const std::int64_t batch = batches[idx(r)];
    if (batch < 0) continue;  // zeros
    if (batch >= x[0]) return a.error(ErrorKind::bad_input, "batch index {} of {} images", batch, x[0]);
    const float shift = half ? 0.5F : 0.0F;
    const float* roi = rois.data() + 4 * r;
    const float left = roi[0] * scale - shift, top = roi[1] * scale - shift;
    float width = roi[2] * scale - shift - left, height = roi[3] * scale - shift - top;
    if (!half) {
      width = std::max(width, 1.0F);
      height = std::max(height, 1.0F);
    }
    const float bin_h = height / static_cast<float>(out[2]), bin_w = width / static_cast<float>(out[3]);
    if (!(bin_h <= 65536 && bin_w <= 65536)) return a.error(ErrorKind::bad_input, "region {} is too large or not a number", r);
    const std::int64_t rows = ratio > 0 ? ratio : static_cast<std::int64_t>(std::ceil(bin_h)),
                       columns = ratio > 0 ? ratio : static_cast<std::int64_t>(std::ceil(bin_w));
    for (std::int64_t c = 0; c < out[1]; ++c) {
      const float* plane = data.data() + (batch * x[1] + c) * x[2] * x[3];
      for (std::int64_t i = 0; i < out[2] * out[3]; ++i) {
        float result = 0;
        bool first = true;
        for (std::int64_t k = 0; k < rows * columns; ++k) {
          const float py =
              top + (static_cast<float>(i / out[3]) + (static_cast<float>(k / columns) + 0.5F) / static_cast<float>(rows)) * bin_h;
          const float px =
              left +
              (static_cast<float>(i % out[3]) + (static_cast<float>(k % columns) + 0.5F) / static_cast<float>(columns)) * bin_w;
          const Neighbours at = roi_neighbours(py, px, x[2], x[3]);
          for (int q = 0; q < 4; ++q) {
            const float tap = plane[at.at[q]];
            result = !largest ? std::fma(tap, at.weight[q], result)
                     : first  ? at.weight[q] * tap
                              : std::max(result, at.weight[q] * tap);
            first = false;
          }
        }
        if (!largest) result /= static_cast<float>(std::max<std::int64_t>(rows * columns, 1));
        y[idx((r * out[1] + c) * out[2] * out[3] + i)] = result;
      }
    }
  }
  return Tensors{from_floats(y, a.out())};
}

/// Linear between the four neighbours; those outside count as 0.
float bilinear(const float* plane, float y, float x, std::int64_t height, std::int64_t width) {
  if (!(y > -1 && y < static_cast<float>(height) && x > -1 && x < static_cast<float>(width))) return 0;
  const auto y0 = static_cast<std::int64_t>(std::floor(y)), x0 = static_cast<std::int64_t>(std::floor(x));
  const float ly = y - static_cast<float>(y0), lx = x - static_cast<float>(x0);
  float sum = 0;
  for (int k = 0; k < 4; ++k) {
    const std::int64_t r = y0 + k / 2, c = x0 + k % 2;
    if (r < 0 || r >= height || c < 0 || c >= width) continue;
    sum = std::fma((k / 2 != 0 ? ly : 1 - ly) * (k % 2 != 0 ? lx : 1 - lx), plane[r * width + c], sum);
  }
  return sum;
}

Tensors deform_conv(const Args& a) {
  const Shape &x = a.shape(0), &w = a.shape(1), &out = a.out().shape;
  const auto data = floats(a.in[0]), weights = floats(a.in[1]), offset = floats(a.in[2]), bias = floats(a.in[3]),
             mask = floats(a.in[4]);
  const auto& facts = a.as<ir::Window>();
  const Shape &strides = facts.strides, &dilations = facts.dilations, &pads = facts.pads;
  const std::int64_t group = facts.group, offsets = facts.offset_group;
  const std::int64_t taps = w[2] * w[3], area = out[2] * out[3], per_offset = x[1] / offsets;
  std::vector<float> y(idx(ir::count(out)));
  for (std::int64_t n = 0; n < out[0]; ++n) {
    for (std::int64_t m = 0; m < out[1]; ++m) {
      for (std::int64_t at = 0; at < area; ++at) {
        float sum = bias[idx(m)];
        for (std::int64_t c = 0; c < w[1]; ++c) {
          const std::int64_t channel = m / (out[1] / group) * w[1] + c;
          for (std::int64_t k = 0; k < taps; ++k) {
            const std::int64_t slot = (n * offsets + channel / per_offset) * taps + k;
            const float py = static_cast<float>(at / out[3] * strides[0] - pads[0] + k / w[3] * dilations[0]) +
                             offset[idx(2 * slot * area + at)];
            const float px = static_cast<float>(at % out[3] * strides[1] - pads[1] + k % w[3] * dilations[1]) +
                             offset[idx((2 * slot + 1) * area + at)];
            const float v =
                bilinear(data.data() + (n * x[1] + channel) * x[2] * x[3], py, px, x[2], x[3]) * mask[idx(slot * area + at)];
            sum = std::fma(weights[idx((m * w[1] + c) * taps + k)], v, sum);
          }
        }
        y[idx((n * out[1] + m) * area + at)] = sum;
      }
    }
  }
  return {from_floats(y, a.out())};
}

struct Box {
  float y0, x0, y1, x1;
};

bool overlap(const Box& p, const Box& q, float threshold) {
  const float h = std::min(p.y1, q.y1) - std::max(p.y0, q.y0), w = std::min(p.x1, q.x1) - std::max(p.x0, q.x0);
  if (h <= 0 || w <= 0) return false;
  const float both = h * w, first = (p.y1 - p.y0) * (p.x1 - p.x0), second = (q.y1 - q.y0) * (q.x1 - q.x0);
  if (first <= 0 || second <= 0) return false;
  return both / (first + second - both) > threshold;
}

/// Boxes by falling score (equal scores: the lower index first); each that overlaps none of the selected is selected.
Tensors non_max_suppression(const Args& a) {
  const std::int64_t batches = a.shape(0)[0], boxes = a.shape(0)[1], classes = a.shape(1)[1];
  const bool centre = a.as<ir::Suppression>().center_point_box;
  const auto corners = floats(a.in[0]), scores = floats(a.in[1]);
  const float iou = floats(a.in[2])[0], least = floats(a.in[3])[0];
  Tensor y(a.out());
  std::fill(y.mutable_data<std::int64_t>().begin(), y.mutable_data<std::int64_t>().end(), -1);
  if (batches * classes == 0) return {y};
  const std::size_t most = idx(a.out().shape[0] / (batches * classes));
  std::size_t rows = 0;
  for (std::int64_t line = 0; line < batches * classes; ++line) {
    const std::int64_t n = line / classes;
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < boxes; ++i) {
      if (scores[idx(line * boxes + i)] > least) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t p, std::int64_t q) { return scores[idx(line * boxes + p)] > scores[idx(line * boxes + q)]; });
    std::vector<Box> taken;
    for (const std::int64_t i : order) {
      if (taken.size() >= most) break;
      const float* c = corners.data() + (n * boxes + i) * 4;
      const Box box = centre ? Box{c[1] - c[3] / 2, c[0] - c[2] / 2, c[1] + c[3] / 2, c[0] + c[2] / 2}
                             : Box{std::min(c[0], c[2]), std::min(c[1], c[3]), std::max(c[0], c[2]), std::max(c[1], c[3])};
      if (std::any_of(taken.begin(), taken.end(), [&](const Box& t) { return overlap(box, t, iou); })) continue;
      taken.push_back(box);
      const std::int64_t row[3] = {n, line % classes, i};
      std::copy_n(row, 3, y.mutable_data<std::int64_t>().begin() + static_cast<std::ptrdiff_t>(3 * rows++));
    }
  }
  return {y};
}

}  // namespace

Result<Tensors> eval_sample(const Args& a) {
  switch (a.n.op) {
    case Op::grid_sample: return grid_sample(a);
    case Op::roi_align: return roi_align(a);
    case Op::deform_conv: return deform_conv(a);
    default: return non_max_suppression(a);
  }
}

}  // namespace octavo::reference
