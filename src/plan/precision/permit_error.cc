#include "plan/precision/permit_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "plan/candidates/magnitudes.h"
#include "reference/evaluate.h"

namespace octavo::plan {

namespace {

/// The error of one output; 0 for what is not float32.
Result<double> error_of(const ir::Tensor& exact, const ir::Tensor& viewed, std::size_t i) {
  if (exact.type() != viewed.type()) {
    return fail(ErrorKind::internal, fmt::format("estimated error: output {} is {} and {}", i, ir::to_string(exact.type()),
                                                 ir::to_string(viewed.type())));
  }
  if (exact.dtype() != ir::DType::f32) return 0.0;
  const auto a = exact.data<float>(), b = viewed.data<float>();
  double largest = 0, error = 0;
  for (std::size_t k = 0; k < a.size(); ++k) {
    if (std::isnan(a[k]) && std::isnan(b[k])) continue;
    const double d = std::abs(static_cast<double>(a[k]) - b[k]);
    error = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(error, d);
    if (std::isfinite(a[k])) largest = std::max(largest, std::abs(static_cast<double>(a[k])));
  }
  if (error == 0) return 0.0;
  return largest > 0 ? error / largest : std::numeric_limits<double>::infinity();
}

}  // namespace

Result<ErrorMeter> ErrorMeter::of(ir::Graph without, std::uint64_t seed, int samples) {
  ErrorMeter m;
  std::mt19937_64 random(seed);
  for (int sample = 0; sample < samples; ++sample) {
    std::vector<ir::Tensor> feeds = random_feeds(without, random);
    OCTAVO_TRY(m.exact_.emplace_back(), reference::evaluate(without, feeds));
    m.feeds_.push_back(std::move(feeds));
  }
  m.without_ = std::move(without);
  return m;
}

Result<double> ErrorMeter::error(const ir::Graph& with_views) const {
  if (without_.inputs.size() != with_views.inputs.size() || without_.outputs.size() != with_views.outputs.size()) {
    return fail(ErrorKind::internal,
                fmt::format("estimated error: the graphs have {} and {} inputs, {} and {} outputs", without_.inputs.size(),
                            with_views.inputs.size(), without_.outputs.size(), with_views.outputs.size()));
  }
  double worst = 0;
  for (std::size_t sample = 0; sample < feeds_.size(); ++sample) {
    OCTAVO_TRY(const auto viewed, reference::evaluate(with_views, feeds_[sample]));
    for (std::size_t i = 0; i < viewed.size(); ++i) {
      OCTAVO_TRY(const double error, error_of(exact_[sample][i], viewed[i], i));
      worst = std::max(worst, error);
    }
  }
  return worst;
}

Result<double> estimated_error(const ir::Graph& without, const ir::Graph& with_views, std::uint64_t seed, int samples) {
  OCTAVO_TRY(const ErrorMeter meter, ErrorMeter::of(without, seed, samples));
  return meter.error(with_views);
}

}  // namespace octavo::plan
