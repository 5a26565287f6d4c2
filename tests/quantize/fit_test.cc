// Rows of layers, the linear algebra, and weights fitted to data.
#include "quantize/correction/fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "quantize/correction/linear.h"
#include "quantize/data/patches.h"

namespace octavo::quantize {
namespace {

std::vector<float> uniform(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> out(n);
  for (float& x : out) x = static_cast<float>(static_cast<double>(random() >> 40) / (1 << 23) - 1.0);
  return out;
}

ir::Tensor tensor(ir::Shape shape, std::uint64_t seed) {
  const auto n = static_cast<std::size_t>(ir::count(shape));
  return ir::Tensor::of<float>(std::move(shape), uniform(n, seed));
}

onnx::Layer conv(ir::Shape weights, std::int64_t group, std::vector<std::int64_t> strides, std::vector<std::int64_t> pads,
                 std::vector<std::int64_t> dilations) {
  onnx::Layer l;
  l.op = "Conv";
  l.weight_values = tensor(std::move(weights), 9);
  l.group = group;
  l.strides = std::move(strides);
  l.pads = std::move(pads);
  l.dilations = std::move(dilations);
  l.auto_pad = "NOTSET";
  return l;
}

/// One output element by the definition of Conv.
double conv_at(const onnx::Layer& l, const ir::Tensor& x, std::int64_t n, std::int64_t m, std::int64_t y, std::int64_t z) {
  const ir::Shape &w = l.weight_values.shape(), &s = x.shape();
  const std::int64_t per_group = w[0] / l.group, first = m / per_group * w[1];
  double sum = 0;
  for (std::int64_t c = 0; c < w[1]; ++c) {
    for (std::int64_t i = 0; i < w[2]; ++i) {
      for (std::int64_t j = 0; j < w[3]; ++j) {
        const std::int64_t a = y * l.strides[0] - l.pads[0] + i * l.dilations[0],
                           b = z * l.strides[1] - l.pads[1] + j * l.dilations[1];
        if (a < 0 || b < 0 || a >= s[2] || b >= s[3]) continue;
        sum += x.at(((n * s[1] + first + c) * s[2] + a) * s[3] + b) * l.weight_values.at(((m * w[1] + c) * w[2] + i) * w[3] + j);
      }
    }
  }
  return sum;
}

TEST(RowLayer, RowsTimesWeightsAreTheConvolution) {
  struct Case {
    ir::Shape weights;
    std::int64_t group;
    std::vector<std::int64_t> strides, pads, dilations;
  };
  for (const Case& c : {Case{{4, 3, 3, 3}, 1, {1, 1}, {1, 1, 1, 1}, {1, 1}}, Case{{6, 1, 3, 3}, 3, {2, 1}, {0, 1, 1, 0}, {1, 1}},
                        Case{{4, 3, 1, 1}, 1, {1, 1}, {0, 0, 0, 0}, {1, 1}}, Case{{2, 3, 3, 2}, 1, {1, 2}, {2, 0, 2, 0}, {2, 1}}}) {
    const onnx::Layer l = conv(c.weights, c.group, c.strides, c.pads, c.dilations);
    const ir::Tensor x = tensor({2, 3, 7, 6}, 10);
    const RowLayer rows(l, x.shape());
    ASSERT_EQ(rows.refused(), "");
    const std::vector<float> w = rows.weights(l.weight_values);
    const std::int64_t height = (7 + c.pads[0] + c.pads[2] - c.dilations[0] * (c.weights[2] - 1) - 1) / c.strides[0] + 1;
    const std::int64_t width = (6 + c.pads[1] + c.pads[3] - c.dilations[1] * (c.weights[3] - 1) - 1) / c.strides[1] + 1;
    ASSERT_EQ(rows.places(), 2 * height * width);
    std::vector<float> row(static_cast<std::size_t>(rows.row_length()));
    for (std::int64_t place = 0; place < rows.places(); ++place) {
      rows.row(x.data<float>(), place, row);
      for (std::int64_t m = 0; m < c.weights[0]; ++m) {
        const std::int64_t g = m / rows.channels(), in = m % rows.channels();
        double sum = 0;
        for (std::int64_t k = 0; k < rows.depth(); ++k) {
          sum += static_cast<double>(row[static_cast<std::size_t>(g * rows.depth() + k)]) *
                 static_cast<double>(w[static_cast<std::size_t>((g * rows.depth() + k) * rows.channels() + in)]);
        }
        const double expected = conv_at(l, x, place / (height * width), m, place / width % height, place % width);
        ASSERT_NEAR(sum, expected, 1e-5) << "place " << place << ", channel " << m;
      }
    }
  }
}

TEST(RowLayer, RefusesWithAReason) {
  onnx::Layer l = conv({4, 3, 3, 3}, 1, {1, 1}, {0, 0, 0, 0}, {1, 1});
  EXPECT_NE(RowLayer(l, {1, 5, 8, 8}).refused(), "");
  l.op = "ConvTranspose";
  EXPECT_EQ(RowLayer(l, {1, 3, 8, 8}).refused(), "ConvTranspose is not corrected");
}

TEST(Linear, CholeskyFactors) {
  constexpr std::size_t k = 17, n = 40;
  const std::vector<float> x = uniform(n * k, 11);
  const Matrix h = product_of_columns(x, k, x, k, n);
  Matrix u = h;
  ASSERT_TRUE(cholesky(u));
  for (std::size_t i = 0; i < k; ++i) {
    for (std::size_t j = i; j < k; ++j) {
      double sum = 0;
      for (std::size_t r = 0; r <= i; ++r) sum += u.row(r)[i] * u.row(r)[j];
      EXPECT_NEAR(sum, h.row(i)[j], 1e-9);
    }
  }
  Matrix singular(2, 2);
  EXPECT_FALSE(cholesky(singular));
}

/// A product whose inputs are correlated and rounded coarsely: what a layer in the middle of a network sees.
struct Scene {
  onnx::Layer layer;
  Rows exact, given;
  Scene() {
    constexpr std::int64_t k = 24, m = 10, n = 600;
    layer.op = "Gemm";
    layer.transposed = true;
    layer.weight_values = tensor({m, k}, 13);
    exact.count = n;
    exact.per_sample = 30;
    exact.length = k;
    exact.values = uniform(n * k, 14);
    for (std::int64_t r = 0; r < n; ++r) {
      for (std::int64_t i = 1; i < k; ++i)
        exact.at(r)[static_cast<std::size_t>(i)] =
            std::abs(0.7F * exact.at(r)[static_cast<std::size_t>(i - 1)] + exact.at(r)[static_cast<std::size_t>(i)]);
    }
    given = exact;
    round_through(ir::per_tensor(ir::DType::u8, 0.008F), exact.values, given.values);
  }
  [[nodiscard]] RowLayer rows() const { return {layer, {600, 24}}; }
  [[nodiscard]] Fit fit(const FitOptions& o) const {
    return fit_layer(rows(), rows().weights(layer.weight_values), exact, given, o);
  }
};

TEST(Fit, LearnedRoundingChangesTheResultsLess) {
  Scene s;
  s.given = s.exact;  // what rounding of the input does is no matter of weights
  FitOptions nearest;
  nearest.learned_rounding = false;
  const Fit a = s.fit(nearest), b = s.fit({});
  EXPECT_LE(a.fitted, a.nearest);
  EXPECT_LT(b.fitted, 0.95 * a.fitted);
  EXPECT_TRUE(b.learned);
  EXPECT_FALSE(a.learned);
}

TEST(Fit, ANoisyInputDoesNotShrinkTheWeights) {
  Scene s;
  round_through(ir::per_tensor(ir::DType::u8, 0.5F), s.exact.values, s.given.values);
  const Fit f = s.fit({});
  const auto w = s.rows().weights(s.layer.weight_values);
  double along = 0, whole = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    along += static_cast<double>(w[i]) * f.codes[i] * static_cast<double>(f.scale[i % 10]);
    whole += static_cast<double>(w[i]) * static_cast<double>(w[i]);
  }
  EXPECT_NEAR(along / whole, 1, 0.01);  // regression on the rounded input gives less
}

TEST(Fit, TheReportedChangeIsTheRealOne) {
  const Scene s;
  const Fit f = s.fit({});
  const auto w = s.rows().weights(s.layer.weight_values);
  constexpr std::size_t k = 24, m = 10, n = 600;
  double sum = 0, mean = 0;
  for (std::size_t c = 0; c < m; ++c) {
    double channel = 0;
    for (std::size_t r = 0; r < n; ++r) {
      double d = static_cast<double>(f.bias_change[c]);
      for (std::size_t i = 0; i < k; ++i) {
        d += static_cast<double>(s.given.values[r * k + i]) * f.codes[i * m + c] * static_cast<double>(f.scale[c]);
        d -= static_cast<double>(s.exact.values[r * k + i]) * static_cast<double>(w[i * m + c]);
      }
      sum += d * d / n;
      channel += d / n;
    }
    mean = std::max(mean, std::abs(channel));
  }
  EXPECT_NEAR(sum, f.fitted, 1e-3 * f.fitted);
  EXPECT_LT(mean, 1e-5);  // the bias makes up for every channel's mean
}

TEST(Fit, BiasStaysWithoutCorrection) {
  FitOptions o;
  o.correct_bias = false;
  for (const float b : Scene().fit(o).bias_change) EXPECT_EQ(b, 0.0F);
}

TEST(Fit, CodesAndScalesAreSoundForConstantInput) {
  Scene s;
  std::fill(s.exact.values.begin(), s.exact.values.end(), 0.0F);
  s.given = s.exact;
  const Fit f = s.fit({});
  for (const float x : f.scale) EXPECT_TRUE(std::isfinite(x) && x > 0);
  for (const float x : f.bias_change) EXPECT_EQ(x, 0.0F);
}

}  // namespace
}  // namespace octavo::quantize
