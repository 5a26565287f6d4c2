#include "quantize/correction/linear.h"

#include <algorithm>
#include <cmath>

// Compiled for several instruction sets, the widest that the processor has is taken at run time. Every element is the same sequence of
// products and sums in each of them (nothing is contracted or reordered), so the results are equal.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define OCTAVO_WIDE __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define OCTAVO_WIDE
#endif

namespace octavo::quantize {
namespace {

/// to[j] += a0 * x0[j] + a1 * x1[j] + ...: four rows at a time.
OCTAVO_WIDE void add_four(float* __restrict to, const float* __restrict x0, const float* __restrict x1, const float* __restrict x2,
                          const float* __restrict x3, float a0, float a1, float a2, float a3, std::size_t n) {
  for (std::size_t j = 0; j < n; ++j) to[j] += (a0 * x0[j] + a1 * x1[j]) + (a2 * x2[j] + a3 * x3[j]);
}

OCTAVO_WIDE void add_one(float* __restrict to, const float* __restrict x, float a, std::size_t n) {
  for (std::size_t j = 0; j < n; ++j) to[j] += a * x[j];
}

OCTAVO_WIDE void add_scaled(double* __restrict to, const double* __restrict x, double a, std::size_t n) {
  for (std::size_t j = 0; j < n; ++j) to[j] += a * x[j];
}

}  // namespace

Matrix product_of_columns(const std::vector<float>& x, std::size_t a, const std::vector<float>& y, std::size_t b, std::size_t n) {
  constexpr std::size_t kBlock = 64;  // rows summed in float before they go to double
  Matrix out(a, b);
  std::vector<float> part(b);
  for (std::size_t from = 0; from < n; from += kBlock) {
    const std::size_t end = std::min(n, from + kBlock);
    for (std::size_t i = 0; i < a; ++i) {
      std::fill(part.begin(), part.end(), 0.0F);
      std::size_t r = from;
      for (; r + 4 <= end; r += 4) {
        const float* xi = x.data() + r * a + i;
        const float* yr = y.data() + r * b;
        add_four(part.data(), yr, yr + b, yr + 2 * b, yr + 3 * b, xi[0], xi[a], xi[2 * a], xi[3 * a], b);
      }
      for (; r < end; ++r) add_one(part.data(), y.data() + r * b, x[r * a + i], b);
      double* to = out.row(i);
      for (std::size_t j = 0; j < b; ++j) to[j] += static_cast<double>(part[j]);
    }
  }
  return out;
}

std::vector<float> product(const std::vector<float>& x, const std::vector<float>& w, std::size_t n, std::size_t k, std::size_t m) {
  std::vector<float> out(n * m);
  for (std::size_t r = 0; r < n; ++r) {
    float* to = out.data() + r * m;
    const float* xr = x.data() + r * k;
    std::size_t i = 0;
    for (; i + 4 <= k; i += 4) {
      const float* wi = w.data() + i * m;
      add_four(to, wi, wi + m, wi + 2 * m, wi + 3 * m, xr[i], xr[i + 1], xr[i + 2], xr[i + 3], m);
    }
    for (; i < k; ++i) add_one(to, w.data() + i * m, xr[i], m);
  }
  return out;
}

void add_scaled_row(double* to, const double* x, double a, std::size_t n) {
  add_scaled(to, x, a, n);
}

bool cholesky(Matrix& h) {
  const std::size_t k = h.rows;
  for (std::size_t i = 0; i < k; ++i) {
    double* ui = h.row(i);
    if (!(ui[i] > 0)) return false;
    const double d = std::sqrt(ui[i]);
    for (std::size_t j = i; j < k; ++j) ui[j] /= d;
    for (std::size_t r = i + 1; r < k; ++r) add_scaled(h.row(r) + r, ui + r, -ui[r], k - r);
  }
  return true;
}

}  // namespace octavo::quantize
