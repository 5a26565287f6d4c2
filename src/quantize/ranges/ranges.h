// From a histogram to the range that a tensor is quantized with.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/quantizer.h"
#include "quantize/data/histogram.h"

namespace octavo::quantize {

enum class Method {
  best,        ///< of the others, for each tensor, the one that changes the results of the layers that read it least
  minmax,      ///< every value seen fits
  percentile,  ///< a given part of all values fits; the rest is clipped
  entropy,     ///< TensorRT's: 2048 bins, 128 levels, the threshold with the least Kullback-Leibler divergence
  error,       ///< the least mean squared difference between value and rounded value
};
[[nodiscard]] std::optional<Method> parse_method(std::string_view text);  ///< "best", "minmax", "percentile", "entropy", "mse"
[[nodiscard]] std::string_view name_of(Method method);

/// Values outside of it are clipped; it holds 0.
struct Interval {
  double lo = 0, hi = 0;
  bool operator==(const Interval&) const = default;
};

struct RangeOptions {
  bool symmetric = false;     ///< [-a, a], zero point 0, s8; otherwise 256 codes with a zero point, u8
  double percentile = 99.99;  ///< of magnitudes (symmetric), or of each side
};

/// `method` is not `best`. Nothing for a tensor without a finite value other than 0.
[[nodiscard]] std::optional<Interval> choose(const Histogram& h, Method method, const RangeOptions& options);
/// What `best` tries: the interval of each method once, min-max first.
[[nodiscard]] std::vector<std::pair<Method, Interval>> candidates(const Histogram& h, const RangeOptions& options);

/// Symmetric: s8, scale amax / 127, zero point 0. Otherwise u8, scale (hi - lo) / 255, zero point rne(-lo / scale).
[[nodiscard]] ir::Quantizer quantizer_of(const Interval& interval, bool symmetric);
/// Mean squared difference between the histogram's values and what they become by `q`, which is per tensor.
[[nodiscard]] double mean_squared_error(const Histogram& h, const ir::Quantizer& q);

}  // namespace octavo::quantize
