#include "quantize/correction/fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/task.h"
#include "quantize/correction/linear.h"

namespace octavo::quantize {
namespace {

/// One group's columns of all rows, without their means.
struct Centered {
  std::vector<float> values;  ///< [n][k]
  std::vector<double> mean;   ///< [k]
};

Centered center(std::vector<float> values, std::size_t n, std::size_t k) {
  Centered out{std::move(values), std::vector<double>(k)};
  for (std::size_t r = 0; r < n; ++r) {
    for (std::size_t i = 0; i < k; ++i) out.mean[i] += static_cast<double>(out.values[r * k + i]);
  }
  for (double& m : out.mean) m /= static_cast<double>(n);
  for (std::size_t r = 0; r < n; ++r) {
    for (std::size_t i = 0; i < k; ++i) out.values[r * k + i] -= static_cast<float>(out.mean[i]);
  }
  return out;
}

std::vector<float> group_of(const Rows& rows, std::size_t group, std::size_t k) {
  std::vector<float> out;
  out.reserve(static_cast<std::size_t>(rows.count) * k);
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const auto row = rows.at(r).subspan(group * k, k);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

float code_of(float w, float scale) {
  return std::clamp(std::nearbyint(w / scale), -127.0F, 127.0F);
}

/// A scale for each of m columns of w [k][m]; `importance` of each k weighs its squared error.
std::vector<float> scales_of(const std::vector<float>& w, const std::vector<double>& importance, std::size_t k, std::size_t m,
                             bool least_error) {
  std::vector<float> out(m);
  for (std::size_t c = 0; c < m; ++c) {
    float most = 0;
    for (std::size_t i = 0; i < k; ++i) most = std::max(most, std::abs(w[i * m + c]));
    out[c] = std::max(most, 1e-9F) / 127.0F;
    if (!least_error || most == 0) continue;
    double least = INFINITY;
    const float widest = out[c];
    for (int step = 0; step <= 10; ++step) {
      const float s = widest * (1.0F - 0.03F * static_cast<float>(step));
      double error = 0;
      for (std::size_t i = 0; i < k; ++i) {
        const double d = static_cast<double>(w[i * m + c] - code_of(w[i * m + c], s) * s);
        error += d * d * importance[i];
      }
      if (error < least) {
        least = error;
        out[c] = s;
      }
    }
  }
  return out;
}

/// Codes nearest to w.
std::vector<float> nearest(const std::vector<float>& w, const std::vector<float>& scale, std::size_t k, std::size_t m) {
  std::vector<float> out(k * m);
  for (std::size_t i = 0; i < k * m; ++i) out[i] = code_of(w[i], scale[i % m]);
  return out;
}

std::vector<float> times_scale(std::vector<float> codes, const std::vector<float>& scale) {
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] *= scale[i % scale.size()];
  return codes;
}

/// The nearest plane: u^T u is the Gram matrix. The last weight is rounded first; the centers of those before it move by its error.
std::vector<float> nearest_plane(const Matrix& u, const std::vector<float>& w, const std::vector<float>& scale, std::size_t m) {
  const std::size_t k = u.rows;
  std::vector<float> codes(k * m);
  Matrix error(k, m);  // wanted value - rounded value
  std::vector<double> center(m);
  for (std::size_t i = k; i-- > 0;) {
    for (std::size_t c = 0; c < m; ++c) center[c] = static_cast<double>(w[i * m + c]);
    const double* ui = u.row(i);
    for (std::size_t j = i + 1; j < k; ++j) add_scaled_row(center.data(), error.row(j), ui[j] / ui[i], m);
    for (std::size_t c = 0; c < m; ++c) {
      const float code = code_of(static_cast<float>(center[c]), scale[c]);
      codes[i * m + c] = code;
      error.row(i)[c] = static_cast<double>(w[i * m + c]) - static_cast<double>(code * scale[c]);
    }
  }
  return codes;
}

/// Mean over rows of the squared difference to the target, summed over channels; means do not count where the bias makes up for them.
double change(const std::vector<float>& target, const std::vector<double>& target_mean, const Centered& x,
              const std::vector<float>& w, std::size_t n, std::size_t k, std::size_t m, bool means) {
  const std::vector<float> y = product(x.values, w, n, k, m);
  double sum = 0;
  for (std::size_t i = 0; i < n * m; ++i) {
    const double d = static_cast<double>(y[i]) - static_cast<double>(target[i]);
    sum += d * d;
  }
  sum /= static_cast<double>(n);
  if (!means) return sum;
  for (std::size_t c = 0; c < m; ++c) {
    double mean = -target_mean[c];
    for (std::size_t i = 0; i < k; ++i) mean += x.mean[i] * static_cast<double>(w[i * m + c]);
    sum += mean * mean;
  }
  return sum;
}

class GroupFit {
 public:
  GroupFit(const FitOptions& options, std::size_t n, std::size_t per_sample, std::size_t k, std::size_t m)
      : options_(options), n_(n), per_sample_(per_sample), k_(k), m_(m) {}

  void run(const std::vector<float>& w, std::vector<float> exact, std::vector<float> given, Fit& fit, std::size_t group) {
    const Centered from = center(std::move(exact), n_, k_), to = center(std::move(given), n_, k_);
    std::vector<float> target = product(from.values, w, n_, k_, m_);
    std::vector<double> target_mean(m_);
    for (std::size_t c = 0; c < m_; ++c) {
      for (std::size_t i = 0; i < k_; ++i) target_mean[c] += from.mean[i] * static_cast<double>(w[i * m_ + c]);
    }
    for (const float t : target) fit.signal += static_cast<double>(t) * static_cast<double>(t) / static_cast<double>(n_);
    std::vector<double> importance(k_);
    for (std::size_t r = 0; r < n_; ++r) {
      for (std::size_t i = 0; i < k_; ++i) {
        const auto x = static_cast<double>(to.values[r * k_ + i]);
        importance[i] += x * x / static_cast<double>(n_);
      }
    }
    const std::vector<float> plain = scales_of(w, importance, k_, m_, false);
    const std::vector<float> before = times_scale(nearest(w, plain, k_, m_), plain);
    fit.nearest += change(target, target_mean, to, before, n_, k_, m_, true);

    // Weights are judged by what they do to the rounded input, not by how near they bring it to the float results: regression on a
    // noisy input shrinks the weights (its noise looks like signal that does not count), and the layers' losses multiply.
    std::vector<float> scale = scales_of(w, importance, k_, m_, options_.least_error_scales), codes = nearest(w, scale, k_, m_);
    if (options_.learned_rounding && static_cast<std::int64_t>(k_) <= options_.most_depth)
      learn(w, importance, to, scale, codes, fit);
    if (options_.full_range) fill_range(w, plain, scale, codes);
    fit.fitted += change(target, target_mean, to, times_scale(codes, scale), n_, k_, m_, !options_.correct_bias);
    const std::vector<float> rounded = times_scale(codes, scale);
    for (std::size_t c = 0; c < m_; ++c) {
      double bias = target_mean[c];
      for (std::size_t i = 0; i < k_; ++i) bias -= to.mean[i] * static_cast<double>(rounded[i * m_ + c]);
      fit.bias_change[group * m_ + c] = options_.correct_bias ? static_cast<float>(bias) : 0.0F;
      fit.scale[group * m_ + c] = scale[c];
    }
    for (std::size_t i = 0; i < k_ * m_; ++i) fit.codes[group * k_ * m_ + i] = static_cast<std::int8_t>(codes[i]);
  }

 private:
  void fill_range(const std::vector<float>& w, const std::vector<float>& plain, std::vector<float>& scale,
                  std::vector<float>& codes) const {
    for (std::size_t c = 0; c < m_; ++c) {
      float most = 0;
      for (std::size_t i = 0; i < k_; ++i) most = std::max(most, std::abs(codes[i * m_ + c]));
      if (most == 127) continue;
      scale[c] = plain[c];
      for (std::size_t i = 0; i < k_; ++i) codes[i * m_ + c] = code_of(w[i * m_ + c], plain[c]);
    }
  }

  struct Rounded {
    std::vector<float> scale, codes;
  };

  /// Weights rounded one after the other. Nothing when the Gram matrix says nothing.
  [[nodiscard]] std::optional<Rounded> round_learned(const std::vector<float>& w, const std::vector<double>& importance,
                                                     const Matrix& gram, double part) const {
    const double mean = std::accumulate(importance.begin(), importance.end(), 0.0) / static_cast<double>(k_);
    if (!(mean > 0)) return std::nullopt;
    std::vector<std::size_t> order(k_);  // what counts most is rounded first: it comes last
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return importance[a] < importance[b]; });
    Matrix u(k_, k_);
    std::vector<float> ordered(k_ * m_);
    for (std::size_t i = 0; i < k_; ++i) {
      for (std::size_t j = 0; j < k_; ++j) u.row(i)[j] = gram.row(order[i])[order[j]] + (i == j ? part * mean : 0);
      std::copy_n(w.data() + order[i] * m_, m_, ordered.data() + i * m_);
    }
    if (!cholesky(u)) return std::nullopt;
    Rounded out{scales_of(w, importance, k_, m_, options_.least_error_scales), std::vector<float>(k_ * m_)};
    const std::vector<float> codes = nearest_plane(u, ordered, out.scale, m_);
    for (std::size_t i = 0; i < k_; ++i) std::copy_n(codes.data() + i * m_, m_, out.codes.data() + order[i] * m_);
    return out;
  }

  /// Rows of the samples whose number has this parity.
  [[nodiscard]] std::vector<float> part(const std::vector<float>& rows, std::size_t columns, std::size_t parity) const {
    std::vector<float> out;
    for (std::size_t r = 0; r < n_; ++r) {
      if (r / per_sample_ % 2 == parity) out.insert(out.end(), rows.data() + r * columns, rows.data() + (r + 1) * columns);
    }
    return out;
  }

  static void divide(Matrix& a, std::size_t n) {
    for (double& x : a.values) x /= static_cast<double>(n);
  }

  /// Replaces scale and codes if the results of samples that were not fitted to then change less.
  void learn(const std::vector<float>& w, const std::vector<double>& importance, const Centered& to, std::vector<float>& scale,
             std::vector<float>& codes, Fit& fit) {
    if (n_ < 2 * per_sample_) return;  // one sample: nothing to judge with
    const bool means = !options_.correct_bias;
    const Centered even{part(to.values, k_, 0), to.mean}, odd{part(to.values, k_, 1), to.mean};
    const std::size_t ne = even.values.size() / k_, no = odd.values.size() / k_;
    const std::vector<float> target = product(odd.values, w, no, k_, m_);
    if (!check_cancelled()) return;
    std::vector<double> target_mean(m_);
    for (std::size_t i = 0; i < k_ * m_; ++i) target_mean[i % m_] += to.mean[i / m_] * static_cast<double>(w[i]);
    Matrix gram_even = product_of_columns(even.values, k_, even.values, k_, ne);
    Matrix gram = product_of_columns(odd.values, k_, odd.values, k_, no);
    if (!check_cancelled()) return;
    for (std::size_t i = 0; i < gram.values.size(); ++i) gram.values[i] += gram_even.values[i];
    divide(gram_even, ne);
    divide(gram, n_);
    double best = change(target, target_mean, odd, times_scale(codes, scale), no, k_, m_, means);
    double damping = -1;
    for (const double d : options_.damping) {
      if (!check_cancelled()) return;
      const auto trial = round_learned(w, importance, gram_even, d);
      if (!trial) continue;
      const double e = change(target, target_mean, odd, times_scale(trial->codes, trial->scale), no, k_, m_, means);
      if (e < best) {
        best = e;
        damping = d;
      }
    }
    if (damping < 0 || !check_cancelled()) return;
    const auto all = round_learned(w, importance, gram, damping);
    if (!all) return;
    scale = all->scale;
    codes = all->codes;
    fit.learned = true;
  }

  const FitOptions& options_;
  const std::size_t n_, per_sample_, k_, m_;
};

}  // namespace

Fit fit_layer(const RowLayer& layer, const std::vector<float>& weights, const Rows& exact, const Rows& given,
              const FitOptions& options) {
  const auto groups = static_cast<std::size_t>(layer.groups()), k = static_cast<std::size_t>(layer.depth()),
             m = static_cast<std::size_t>(layer.channels());
  Fit fit;
  fit.codes.resize(weights.size());
  fit.scale.resize(groups * m);
  fit.bias_change.resize(groups * m);
  GroupFit one(options, static_cast<std::size_t>(exact.count),
               static_cast<std::size_t>(std::max<std::int64_t>(1, exact.per_sample)), k, m);
  for (std::size_t g = 0; g < groups && check_cancelled(); ++g) {
    const auto first = weights.begin() + static_cast<std::ptrdiff_t>(g * k * m);
    one.run({first, first + static_cast<std::ptrdiff_t>(k * m)}, group_of(exact, g, k), group_of(given, g, k), fit, g);
  }
  return fit;
}

void round_through(const ir::Quantizer& q, std::span<const float> from, std::span<float> to) {
  const float scale = q.scale[0], lo = static_cast<float>(q.lo() - q.zero_point[0]),
              hi = static_cast<float>(q.hi() - q.zero_point[0]);
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = std::clamp(std::nearbyint(from[i] / scale), lo, hi) * scale;
}

}  // namespace octavo::quantize
