#include "quantize/ranges/ranges.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace octavo::quantize {
namespace {

constexpr std::array<std::pair<Method, std::string_view>, 5> kMethods{{{Method::best, "best"},
                                                                       {Method::minmax, "minmax"},
                                                                       {Method::percentile, "percentile"},
                                                                       {Method::entropy, "entropy"},
                                                                       {Method::error, "mse"}}};

Interval min_max(const Histogram& h, bool symmetric) {
  if (symmetric) return {-h.largest(), h.largest()};
  return {std::min(0.0, static_cast<double>(h.min())), std::max(0.0, static_cast<double>(h.max()))};
}

/// The least magnitude that `part` of a side's values do not exceed; `total` 0: no value on this side.
double side_percentile(const Histogram& h, bool above, double part) {
  std::uint64_t total = 0, seen = 0;
  for (int k = 0; k < Histogram::kSide; ++k) total += above ? h.above(k) : h.below(k);
  if (total == 0) return 0;
  const double wanted = part * static_cast<double>(total);
  for (int k = 0; k < Histogram::kSide; ++k) {
    seen += above ? h.above(k) : h.below(k);
    if (static_cast<double>(seen) >= wanted) return (k + 1) * h.width();
  }
  return h.largest();
}

Interval percentile(const Histogram& h, const RangeOptions& o) {
  const Interval all = min_max(h, o.symmetric);
  const double part = o.percentile / 100;
  if (!o.symmetric) return {std::max(all.lo, -side_percentile(h, false, part)), std::min(all.hi, side_percentile(h, true, part))};
  const double wanted = part * static_cast<double>(h.count());
  std::uint64_t seen = 0;
  for (int k = 0; k < Histogram::kSide; ++k) {
    seen += h.above(k) + h.below(k);
    if (static_cast<double>(seen) >= wanted) {
      const double a = std::min(all.hi, (k + 1) * h.width());
      return {-a, a};
    }
  }
  return all;
}

/// Magnitudes of the histogram in `count` bins of equal width over the largest one; a bin that spans two gives each its part.
std::vector<double> magnitudes(const Histogram& h, int count) {
  std::vector<double> out(static_cast<std::size_t>(count));
  const double width = h.largest() / count;
  for (int k = 0; k < Histogram::kSide; ++k) {
    const auto n = static_cast<double>(h.above(k) + h.below(k));
    if (n == 0) continue;
    const double lo = k * h.width() / width, hi = std::min((k + 1) * h.width() / width, static_cast<double>(count));
    const int first = std::min(static_cast<int>(lo), count - 1), last = std::min(static_cast<int>(hi), count - 1);
    for (int b = first; b <= last; ++b) {
      const double part = std::min(hi, b + 1.0) - std::max(lo, static_cast<double>(b));
      out[static_cast<std::size_t>(b)] += hi > lo ? n * part / (hi - lo) : n;
    }
  }
  return out;
}

/// TensorRT's calibration: among the thresholds of i = 128 ... 2048 bins, the one whose 128-level distribution is nearest to the
/// clipped one. The first bin counts as much as the second (zeros behind a Relu say nothing).
double entropy_threshold(const Histogram& h) {
  constexpr int kBins = 2048, kLevels = 128;
  std::vector<double> bins = magnitudes(h, kBins);
  bins[0] = bins[1];
  std::vector<double> sum(kBins + 1), filled(kBins + 1), p_log_p(kBins + 1);  // of the bins before each
  for (std::size_t b = 0; b < kBins; ++b) {
    sum[b + 1] = sum[b] + bins[b];
    filled[b + 1] = filled[b] + (bins[b] > 0 ? 1 : 0);
    p_log_p[b + 1] = p_log_p[b] + (bins[b] > 0 ? bins[b] * std::log(bins[b]) : 0);
  }
  const double total = sum[kBins];
  if (!(total > 0)) return h.largest();
  double least = std::numeric_limits<double>::infinity();
  int best = kBins;
  for (std::size_t i = kLevels; i <= kBins; ++i) {
    if (!(sum[i] > 0)) continue;
    // sum over bins of p log(p / q): p is the clipped distribution, its last bin holds what lies outside; q spreads the count of each
    // level evenly over the level's bins that are not empty.
    const double outside = total - sum[i], last = bins[i - 1] + outside;
    double divergence = p_log_p[i - 1] + (last > 0 ? last * std::log(last) : 0) - total * std::log(total / sum[i]);
    for (std::size_t level = 0; level < kLevels; ++level) {
      const std::size_t from = (level * i + kLevels - 1) / kLevels, to = ((level + 1) * i + kLevels - 1) / kLevels;
      const double here = sum[to] - sum[from];
      if (!(here > 0)) continue;
      const double q = here / (filled[to] - filled[from]);
      const double p = here + (to == i && bins[i - 1] > 0 ? outside : 0);
      divergence -= p * std::log(q);
    }
    if (bins[i - 1] == 0) divergence -= outside * std::log(1e-12 * sum[i]);
    if (divergence / total < least) {
      least = divergence / total;
      best = static_cast<int>(i);
    }
  }
  return (best + 0.5) * h.largest() / kBins;
}

/// Coordinate descent over clipped ends, coarse to fine.
Interval least_error(const Histogram& h, const RangeOptions& o) {
  const Interval all = min_max(h, o.symmetric);
  Interval best = all;
  double least = mean_squared_error(h, quantizer_of(all, o.symmetric));
  const auto attempt = [&](const Interval& i) {
    if (!(i.hi > i.lo)) return;
    const double e = mean_squared_error(h, quantizer_of(i, o.symmetric));
    if (e < least) {
      least = e;
      best = i;
    }
  };
  for (const double step : {0.04, 0.01}) {
    const Interval from = best;
    for (int k = step > 0.02 ? 0 : -3; k <= (step > 0.02 ? 20 : 3); ++k) {
      const double cut = k * step;
      if (o.symmetric) {
        const double a = std::min(all.hi, from.hi - cut * all.hi);
        attempt({-a, a});
      } else {
        attempt({best.lo, std::min(all.hi, from.hi - cut * all.hi)});
      }
    }
    if (o.symmetric || all.lo == 0) continue;
    for (int k = step > 0.02 ? 0 : -3; k <= (step > 0.02 ? 20 : 3); ++k)
      attempt({std::max(all.lo, from.lo - k * step * all.lo), best.hi});
  }
  return best;
}

}  // namespace

std::optional<Method> parse_method(std::string_view text) {
  for (const auto& [method, name] : kMethods) {
    if (name == text) return method;
  }
  return std::nullopt;
}

std::string_view name_of(Method method) {
  return std::find_if(kMethods.begin(), kMethods.end(), [&](const auto& m) { return m.first == method; })->second;
}

std::optional<Interval> choose(const Histogram& h, Method method, const RangeOptions& options) {
  if (h.count() == 0 || !(h.largest() > 0)) return std::nullopt;
  switch (method) {
    case Method::percentile: return percentile(h, options);
    case Method::error: return least_error(h, options);
    case Method::entropy: {
      const double a = std::min(entropy_threshold(h), h.largest());
      const Interval all = min_max(h, options.symmetric);
      return Interval{std::max(all.lo, -a), std::min(all.hi, a)};
    }
    default: return min_max(h, options.symmetric);
  }
}

std::vector<std::pair<Method, Interval>> candidates(const Histogram& h, const RangeOptions& options) {
  std::vector<std::pair<Method, Interval>> out;
  for (const Method m : {Method::minmax, Method::error, Method::percentile, Method::entropy}) {
    const auto interval = choose(h, m, options);
    if (interval && std::none_of(out.begin(), out.end(), [&](const auto& o) { return o.second == *interval; }))
      out.emplace_back(m, *interval);
  }
  return out;
}

ir::Quantizer quantizer_of(const Interval& interval, bool symmetric) {
  constexpr double kLeast = 1e-30;  // far above the denormals, where scales lose their precision
  if (symmetric) {
    const double a = std::max({-interval.lo, interval.hi, kLeast});
    return ir::per_tensor(ir::DType::s8, static_cast<float>(a / 127));
  }
  return ir::covering(interval.lo, interval.hi);
}

double mean_squared_error(const Histogram& h, const ir::Quantizer& q) {
  if (h.count() == 0) return 0;
  const double scale = q.scale[0], lo = static_cast<double>(q.lo() - q.zero_point[0]),
               hi = static_cast<double>(q.hi() - q.zero_point[0]);
  double sum = 0;
  h.each([&](double x, std::uint64_t n) {
    const double d = x - std::clamp(std::nearbyint(x / scale), lo, hi) * scale;
    sum += d * d * static_cast<double>(n);
  });
  return sum / static_cast<double>(h.count());
}

}  // namespace octavo::quantize
