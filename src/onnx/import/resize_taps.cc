#include "onnx/import/resize_taps.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "onnx/import/compose.h"

namespace octavo::onnx {
namespace {

double source(const TapsRequest& r, const TapsDim& d, double o) {
  const auto in = static_cast<double>(d.in);
  const double length = d.scale * in;
  if (r.coordinates == "align_corners") return length == 1 ? 0 : o * (in - 1) / (length - 1);
  if (r.coordinates == "asymmetric") return o / d.scale;
  if (r.coordinates == "tf_half_pixel_for_nn") return (o + 0.5) / d.scale;
  if (r.coordinates == "pytorch_half_pixel") return length == 1 ? -0.5 : (o + 0.5) / d.scale - 0.5;
  if (r.coordinates == "tf_crop_and_resize") {
    const double span = (d.roi_end - d.roi_start) * (in - 1);
    return d.roi_start * (in - 1) + (length == 1 ? span / 2 : o * span / (length - 1));
  }
  const double half = (o + 0.5) / d.scale - 0.5;
  if (r.coordinates != "half_pixel_symmetric") return half;
  return half + in / 2 * (1 - static_cast<double>(d.out) / length);
}

double cubic_weight(double x, double a) {
  x = std::abs(x);
  if (x <= 1) return (a + 2) * x * x * x - (a + 3) * x * x + 1;
  return x < 2 ? a * x * x * x - 5 * a * x * x + 8 * a * x - 4 * a : 0;
}

struct Taps {
  std::int64_t first = 0;
  std::vector<double> weight;
};

/// A kernel of half-width 1 (linear) or 2 (cubic), stretched by 1 / scale when antialiased.
Taps taps(const TapsRequest& r, const TapsDim& d, double x) {
  if (r.mode == "nearest") {
    const auto bounded = static_cast<float>(std::clamp(x, -1.0, static_cast<double>(d.in)));
    return {nearest_index(r.nearest, bounded, d.scale < 1), {1.0}};
  }
  const bool cubic = r.mode == "cubic";
  const double stretch = r.antialias ? std::min(d.scale, 1.0) : 1.0, radius = cubic ? 2 : 1;
  const auto begin = static_cast<std::int64_t>(std::floor(-radius / stretch)) + 1;
  // On an element the window lies to its left, as in the ONNX text: the fraction is in (0, 1].
  const double below = std::floor(x) == x ? x - 1 : std::floor(x), fraction = x - below;
  Taps t{static_cast<std::int64_t>(below) + begin, {}};
  double sum = 0;
  for (std::int64_t k = begin; k < 2 - begin; ++k) {
    const double at = (static_cast<double>(k) - fraction) * stretch;
    t.weight.push_back(cubic ? cubic_weight(at, r.cubic) : std::max(0.0, 1 - std::abs(at)));
    sum += t.weight.back();
  }
  if (r.antialias) {
    for (double& w : t.weight) w /= sum;
  }
  return t;
}

}  // namespace

std::int64_t nearest_index(const std::string& mode, float x, bool shrinks) {
  // Coordinates within 1e-6 of a half count as half, so that f32 rounding of exact halves does not decide.
  const double below = std::floor(static_cast<double>(x)), fraction = static_cast<double>(x) - below;
  const bool half = std::abs(fraction - 0.5) <= 1e-6;
  if (mode == "round_prefer_floor") return static_cast<std::int64_t>(half || fraction < 0.5 ? below : below + 1);
  if (mode == "round_prefer_ceil") return static_cast<std::int64_t>(half || fraction > 0.5 ? below + 1 : below);
  if (mode == "ceil") return static_cast<std::int64_t>(std::ceil(x));
  if (mode == "simple") return static_cast<std::int64_t>(shrinks ? std::ceil(x) : std::trunc(x));  // opset 10
  return static_cast<std::int64_t>(std::floor(x));
}

Result<ValueId> resize_by_taps(NodeContext& n, ValueId x, std::int64_t axis, const TapsRequest& r, const TapsDim& d) {
  Compose c(n);
  constexpr std::int64_t kMostTaps = std::int64_t{1} << 22;
  std::vector<Taps> all;
  std::vector<bool> outside;
  std::int64_t total = 0;
  for (std::int64_t o = 0; o < d.out; ++o) {
    const double at = source(r, d, static_cast<double>(o));
    outside.push_back(r.coordinates == "tf_crop_and_resize" && !(at >= 0 && at <= static_cast<double>(d.in - 1)));
    all.push_back(taps(r, d, std::clamp(at, -1e9, 1e9)));
    total += static_cast<std::int64_t>(all.back().weight.size());
    if (total > kMostTaps) return n.unsupported("dimension {} is resized from {} to {} with too many taps", axis, d.in, d.out);
  }
  const auto count = static_cast<std::int64_t>(all.empty() ? 0 : all[0].weight.size());
  Ints index;
  Shape along(static_cast<std::size_t>(n.type_of(x).shape.size()) + 1, 1);
  along[static_cast<std::size_t>(axis)] = d.out;
  along[static_cast<std::size_t>(axis) + 1] = count;
  Tensor weights(DType::f32, along);
  std::size_t at = 0;
  for (const Taps& t : all) {
    double sum = 0;
    for (std::int64_t k = 0; k < count; ++k) {
      const bool inside = t.first + k >= 0 && t.first + k < d.in;
      sum += !r.exclude_outside || inside ? t.weight[static_cast<std::size_t>(k)] : 0;
    }
    for (std::int64_t k = 0; k < count; ++k) {
      const bool inside = t.first + k >= 0 && t.first + k < d.in;
      double w = !r.exclude_outside || inside ? t.weight[static_cast<std::size_t>(k)] : 0;
      if (r.exclude_outside && sum != 0) w /= sum;
      weights.mutable_data<float>()[at++] = static_cast<float>(w);
      index.push_back(std::clamp<std::int64_t>(t.first + k, 0, d.in - 1));
    }
  }
  ValueId y = ir::kNone;
  if (r.mode == "nearest") {
    y = c.gather(x, c.integers({d.out}, index), axis);
  } else {
    const ValueId picked = c.gather(x, c.integers({d.out, count}, index), axis);
    y = c.reduce(Op::reduce_sum, c.mul(picked, c.constant(std::move(weights))), {axis + 1}, false);
  }
  if (std::find(outside.begin(), outside.end(), true) != outside.end()) {
    along.erase(along.begin() + axis + 1);
    y = c.where(c.mask(along, outside), c.number(static_cast<double>(r.extrapolation), y), y);
  }
  return c.value(y);
}

}  // namespace octavo::onnx
