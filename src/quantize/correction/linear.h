// The linear algebra of layer fitting. Sums have a fixed order: results do not depend on threads or instruction sets.
#pragma once

#include <cstddef>
#include <vector>

namespace octavo::quantize {

/// Row-major.
struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values;
  Matrix() = default;
  Matrix(std::size_t r, std::size_t c) : rows(r), columns(c), values(r * c) {}
  [[nodiscard]] double* row(std::size_t r) { return values.data() + r * columns; }
  [[nodiscard]] const double* row(std::size_t r) const { return values.data() + r * columns; }
};

/// sum over rows n of x[n][i] * y[n][j]; x and y are [n][a] and [n][b], dense.
[[nodiscard]] Matrix product_of_columns(const std::vector<float>& x, std::size_t a, const std::vector<float>& y, std::size_t b,
                                        std::size_t n);
/// x [n][k] times w [k][m].
[[nodiscard]] std::vector<float> product(const std::vector<float>& x, const std::vector<float>& w, std::size_t n, std::size_t k,
                                         std::size_t m);

/// to[j] += a * x[j].
void add_scaled_row(double* to, const double* x, double a, std::size_t n);

/// h = u^T u with u upper triangular, in place (what lies below the diagonal is not touched). False when h is not positive definite.
[[nodiscard]] bool cholesky(Matrix& h);

}  // namespace octavo::quantize
