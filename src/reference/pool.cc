// max_pool and avg_pool.
//   max_pool  largest element inside the window (elements in padding take no part; a window wholly in padding gives the type's
//   lowest value) avg_pool  on an 8-bit per-tensor grid: y = (float(S) * s) / count with S = exact sum of (code - zp); otherwise
//   the fp32 sum in row-major
//             blocks (sums.h), divided by count. count = elements inside the input, or with count_include_pad inside the padded input.
#include <limits>

#include "reference/detail.h"
#include "reference/sums.h"

namespace octavo::reference {
namespace {

/// For one output position: flat input positions inside the image, and how many window elements lie inside the padded image.
struct Window {
  std::vector<std::int64_t> inside;
  std::int64_t padded = 0;
};

std::vector<Window> windows_of(const Args& a) {
  const Shape& x = a.shape(0);
  const Shape& y = a.out().shape;
  const std::size_t spatial = x.size() - 2;
  const auto& facts = a.as<ir::Window>();
  std::vector<Window> out{Window{{0}, 1}};
  for (std::size_t d = 0; d < spatial; ++d) {  // the product of one-dimensional windows, dimension by dimension
    std::vector<Window> wider;
    for (const Window& before : out) {
      for (std::int64_t o = 0; o < y[d + 2]; ++o) {
        Window w;
        std::int64_t padded = 0;
        std::vector<std::int64_t> sources;
        for (std::int64_t k = 0; k < facts.kernel[d]; ++k) {
          const std::int64_t i = o * facts.strides[d] - facts.before(d) + k * facts.dilations[d];
          padded += i >= -facts.before(d) && i < x[d + 2] + facts.after(d);
          if (i >= 0 && i < x[d + 2]) sources.push_back(i);
        }
        for (const std::int64_t at : before.inside) {
          for (const std::int64_t i : sources) w.inside.push_back(at * x[d + 2] + i);
        }
        w.padded = before.padded * padded;
        wider.push_back(std::move(w));
      }
    }
    out = std::move(wider);
  }
  return out;
}

/// f(plane offset, window) -> result, for every image plane and window.
template <class T, class F>
std::vector<T> pooled(const Args& a, F&& f) {
  const std::vector<Window> windows = windows_of(a);
  const Shape& x = a.shape(0);
  const std::int64_t planes = x[0] * x[1], positions = ir::count(Shape(x.begin() + 2, x.end()));
  std::vector<T> y;
  y.reserve(idx(ir::count(a.out().shape)));
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    for (const Window& w : windows) y.push_back(f(plane * positions, w));
  }
  return y;
}

/// Lowest value of an integer type (1-, 2-, 4-, 8-byte).
std::int64_t lowest(DType t) {
  switch (t) {
    case DType::s8: return -128;
    case DType::s16: return -32768;
    case DType::s32: return std::numeric_limits<std::int32_t>::min();
    case DType::s64: return std::numeric_limits<std::int64_t>::min();
    default: return 0;
  }
}

/// Position of the first largest element of each window (of a NaN-free one; 0 for a window wholly in padding), in the whole tensor;
/// column_major counts the first spatial dimension fastest.
Tensors positions_of_max(const Args& a) {
  const bool real = ir::is_float(a.in[0].dtype()), column_major = a.as<ir::Window>().column_major;
  const auto f = real ? floats(a.in[0]) : std::vector<float>{};
  const auto w = real ? Ints{} : integers(a.in[0]);
  const Shape& x = a.shape(0);
  const auto position = [&](std::int64_t base, std::int64_t i) {
    if (!column_major) return base + i;
    std::int64_t at = 0, step = ir::count(Shape(x.begin() + 2, x.end()));
    for (std::size_t d = x.size(); d-- > 2;) {
      step /= x[d];
      at += i % x[d] * step;
      i /= x[d];
    }
    return base + at;
  };
  return {from_integers(pooled<std::int64_t>(a,
                                             [&](std::int64_t base, const Window& window) {
                                               if (window.inside.empty()) return std::int64_t{0};
                                               std::int64_t best = window.inside[0];
                                               for (const std::int64_t i : window.inside) {
                                                 const bool larger = real ? f[idx(base + i)] > f[idx(base + best)]
                                                                          : w[idx(base + i)] > w[idx(base + best)];
                                                 best = larger ? i : best;
                                               }
                                               return position(base, best);
                                             }),
                        a.out())};
}

}  // namespace

Result<Tensors> eval_pool(const Args& a) {
  if (a.n.op == Op::max_pool_index) return Tensors{positions_of_max(a)};
  if (a.n.op == Op::max_pool && !ir::is_float(a.out().dtype)) {
    const auto x = integers(a.in[0]);
    return Tensors{from_integers(pooled<std::int64_t>(a,
                                                      [&](std::int64_t base, const Window& w) {
                                                        std::int64_t m = lowest(a.out().dtype);
                                                        for (const std::int64_t i : w.inside) m = std::max(m, x[idx(base + i)]);
                                                        return m;
                                                      }),
                                 a.out())};
  }
  if (a.n.op == Op::max_pool) {
    const auto x = floats(a.in[0]);
    return Tensors{from_floats(pooled<float>(a,
                                             [&](std::int64_t base, const Window& w) {
                                               float m = -std::numeric_limits<float>::infinity();
                                               for (const std::int64_t i : w.inside)
                                                 m = x[idx(base + i)] > m ? x[idx(base + i)] : m;
                                               return m;
                                             }),
                               a.out())};
  }
  const bool include_pad = a.as<ir::Window>().count_include_pad;
  const auto count = [include_pad](const Window& w) {
    return static_cast<float>(include_pad ? w.padded : static_cast<std::int64_t>(w.inside.size()));
  };
  const ir::Quantizer* q = a.grid(0);
  if (q && q->per_tensor() && ir::is_int8(q->type) && ir::injective(*q)) {
    OCTAVO_TRY(const std::vector<std::int16_t> x, centred_codes(a, a.in[0], *q));
    return Tensors{from_floats(pooled<float>(a,
                                             [&](std::int64_t base, const Window& w) {
                                               std::int64_t sum = 0;
                                               for (const std::int64_t i : w.inside) sum += x[idx(base + i)];
                                               return static_cast<float>(sum) * q->scale[0] / count(w);
                                             }),
                               a.out())};
  }
  const auto x = floats(a.in[0]);
  return Tensors{from_floats(
      pooled<float>(a,
                    [&](std::int64_t base, const Window& w) {
                      const auto taps = static_cast<std::int64_t>(w.inside.size());
                      return sum_in_blocks(taps, [&](float sum, std::int64_t i) { return sum + x[idx(base + w.inside[idx(i)])]; }) /
                             count(w);
                    }),
      a.out())};
}

}  // namespace octavo::reference
