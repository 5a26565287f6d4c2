// resize_linear and resize_cubic: separable, the last dimension first, fp32 between the passes.
//   The source coordinate of output o is computed in double (modes below) and the weights are rounded to fp32 once.
//   linear  x clamped into [0, D-1]; y = fma(v[i+1], w, v[i] * (1 - w)) with w the fraction
//   cubic   taps i-1..i+2, clamped to the border (exclude_outside: left out, the others rescaled); y = fma over the taps in order
#include <algorithm>
#include <cmath>

#include "ir/resize_source.h"
#include "reference/detail.h"

namespace octavo::reference {
namespace {

/// Source elements and weights of one output coordinate.
struct Tap {
  Ints from;
  std::vector<float> weight;
};

Tap linear(double x, std::int64_t extent) {
  const double inside = std::clamp(x, 0.0, static_cast<double>(extent - 1));
  const auto low = static_cast<std::int64_t>(std::floor(inside));
  const std::int64_t high = std::min(low + 1, extent - 1);
  const auto w = static_cast<float>(inside - static_cast<double>(low));
  return {{low, high}, {1.0F - w, w}};
}

Tap cubic(double x, std::int64_t extent, double coefficient, bool exclude_outside) {
  const double floor = std::floor(x), t = x - floor, A = coefficient;
  const auto near = [A](double d) { return ((A + 2) * d - (A + 3)) * d * d + 1; };
  const auto far = [A](double d) { return ((A * d - 5 * A) * d + 8 * A) * d - 4 * A; };
  double w[4] = {far(t + 1), near(t), near(1 - t), far(2 - t)};
  Tap tap;
  double sum = 0;
  for (int k = 0; k < 4; ++k) {
    const std::int64_t i = static_cast<std::int64_t>(floor) - 1 + k;
    if (exclude_outside && (i < 0 || i >= extent)) w[k] = 0;
    sum += w[k];
    tap.from.push_back(std::clamp<std::int64_t>(i, 0, extent - 1));
  }
  for (const double v : w) tap.weight.push_back(static_cast<float>(exclude_outside ? v / sum : v));
  return tap;
}

}  // namespace

Result<Tensors> eval_resize(const Args& a) {
  const Shape& x = a.shape(0);
  const Shape& y = a.out().shape;
  const auto& facts = a.as<ir::Resize>();
  std::vector<float> data = floats(a.in[0]);
  Shape now = x;
  for (std::size_t d = x.size(); d-- > 0;) {
    const double in = static_cast<double>(x[d]), out = static_cast<double>(y[d]);
    const double scale = facts.scales.empty() ? out / in : facts.scales[d];
    if (x[d] == y[d] && scale == 1) continue;
    std::vector<Tap> taps;
    for (std::int64_t o = 0; o < y[d]; ++o) {
      const double at = ir::resize_source(facts.coordinates, static_cast<double>(o), in, out, scale);
      taps.push_back(a.n.op == Op::resize_linear ? linear(at, x[d]) : cubic(at, x[d], facts.cubic_coeff_a, facts.exclude_outside));
    }
    const std::int64_t inner = ir::dense_strides(now)[d], outer = ir::count(now) / (inner * now[d]);
    now[d] = y[d];
    std::vector<float> next(idx(ir::count(now)));
    for (std::int64_t i = 0; i < outer; ++i) {
      for (std::int64_t o = 0; o < y[d]; ++o) {
        const Tap& tap = taps[idx(o)];
        for (std::int64_t k = 0; k < inner; ++k) {
          const auto v = [&](std::size_t t) { return data[idx((i * x[d] + tap.from[t]) * inner + k)]; };
          float sum = v(0) * tap.weight[0];
          for (std::size_t t = 1; t < tap.from.size(); ++t) sum = std::fma(v(t), tap.weight[t], sum);
          next[idx((i * y[d] + o) * inner + k)] = sum;
        }
      }
    }
    data = std::move(next);
  }
  return Tensors{from_floats(data, a.out())};
}

}  // namespace octavo::reference
