#include "plan/permit_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "reference/evaluate.h"

namespace octavo::plan {

Result<double> estimated_error(const ir::Graph& without, const ir::Graph& with_views, std::uint64_t seed, int samples) {
  if (without.inputs.size() != with_views.inputs.size() || without.outputs.size() != with_views.outputs.size()) {
    return fail(ErrorKind::internal,
                fmt::format("estimated error: the graphs have {} and {} inputs, {} and {} outputs", without.inputs.size(),
                            with_views.inputs.size(), without.outputs.size(), with_views.outputs.size()));
  }
  double worst = 0;
  std::mt19937_64 random(seed);
  for (int sample = 0; sample < samples; ++sample) {
    std::vector<ir::Tensor> feeds;
    for (const ir::ValueId v : without.inputs) {
      ir::Tensor t(without.type(v));
      if (t.dtype() == ir::DType::f32) {
        for (float& x : t.mutable_data<float>()) x = static_cast<float>(static_cast<double>(random() >> 40) / (1 << 23) - 1.0);
      } else if (ir::is_int8(t.dtype())) {
        for (std::byte& b : t.mutable_bytes()) b = static_cast<std::byte>(random() >> 56);
      }  // indices, masks and half types stay 0
      feeds.push_back(std::move(t));
    }
    OCTAVO_TRY(const auto exact, reference::evaluate(without, feeds));
    OCTAVO_TRY(const auto viewed, reference::evaluate(with_views, feeds));
    for (std::size_t i = 0; i < exact.size(); ++i) {
      if (exact[i].type() != viewed[i].type()) {
        return fail(ErrorKind::internal, fmt::format("estimated error: output {} is {} and {}", i, ir::to_string(exact[i].type()),
                                                     ir::to_string(viewed[i].type())));
      }
      if (exact[i].dtype() != ir::DType::f32) continue;
      const auto a = exact[i].data<float>(), b = viewed[i].data<float>();
      double largest = 0, error = 0;
      for (std::size_t k = 0; k < a.size(); ++k) {
        if (std::isnan(a[k]) && std::isnan(b[k])) continue;
        const double d = std::abs(static_cast<double>(a[k]) - b[k]);
        error = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(error, d);
        if (std::isfinite(a[k])) largest = std::max(largest, std::abs(static_cast<double>(a[k])));
      }
      if (error > 0) worst = std::max(worst, largest > 0 ? error / largest : std::numeric_limits<double>::infinity());
    }
  }
  return worst;
}

}  // namespace octavo::plan
