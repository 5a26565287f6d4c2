#include "quantize/ranges/best_range.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quantize/correction/fit.h"
#include "quantize/correction/linear.h"

namespace octavo::quantize {
namespace {

/// Sums of squares over rows, channel by channel, without the square of their mean when `centered`.
double energy(const std::vector<float>& y, std::size_t n, std::size_t m, bool centered) {
  double sum = 0;
  for (std::size_t c = 0; c < m; ++c) {
    double squares = 0, mean = 0;
    for (std::size_t r = 0; r < n; ++r) {
      const auto v = static_cast<double>(y[r * m + c]);
      squares += v * v;
      mean += v;
    }
    sum += centered ? squares - mean * mean / static_cast<double>(n) : squares;
  }
  return sum;
}

double relative_change(const Reader& reader, const ir::Quantizer& q, bool centered) {
  constexpr std::int64_t kMost = 2048;
  const RowLayer& l = *reader.layer;
  const auto k = static_cast<std::size_t>(l.depth()), m = static_cast<std::size_t>(l.channels());
  const std::int64_t n = std::min(kMost, reader.rows->count);
  double change = 0, signal = 0;
  for (std::int64_t g = 0; g < l.groups(); ++g) {
    std::vector<float> x, e;
    for (std::int64_t r = 0; r < n; ++r) {
      const auto row = reader.rows->at(r * reader.rows->count / n).subspan(static_cast<std::size_t>(g) * k, k);
      x.insert(x.end(), row.begin(), row.end());
    }
    e.resize(x.size());
    round_through(q, x, e);
    for (std::size_t i = 0; i < x.size(); ++i) e[i] -= x[i];
    const auto first = reader.weights->begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(g) * k * m);
    const std::vector<float> w(first, first + static_cast<std::ptrdiff_t>(k * m));
    change += energy(product(e, w, static_cast<std::size_t>(n), k, m), static_cast<std::size_t>(n), m, centered);
    signal += energy(product(x, w, static_cast<std::size_t>(n), k, m), static_cast<std::size_t>(n), m, centered);
  }
  return signal > 0 ? change / signal : change;
}

}  // namespace

std::pair<Method, Interval> best_range(const Histogram& h, const std::vector<std::pair<Method, Interval>>& tried,
                                       const std::vector<Reader>& readers, bool symmetric, bool centered) {
  double least = std::numeric_limits<double>::infinity();
  std::pair<Method, Interval> best = tried.front();
  for (const auto& candidate : tried) {
    const ir::Quantizer q = quantizer_of(candidate.second, symmetric);
    double loss = 0;
    for (const Reader& r : readers) loss += relative_change(r, q, centered);
    if (readers.empty()) loss = mean_squared_error(h, q);
    if (loss < least) {
      least = loss;
      best = candidate;
    }
  }
  return best;
}

}  // namespace octavo::quantize
