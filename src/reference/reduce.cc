// Reductions over axes, and arg_max.
//   mean, sum on an 8-bit per-tensor grid over spatial axes (2 and up) only: exact integer sum S of (code - zp); sum = float(S) *
//   s, mean = (float(S) * s) / count. Otherwise fp32 from the operation's identity, in row-major order; sums, means and sums of squares in
//   row-major blocks that are added in pairs (sums.h). Integers in 64 bits, wrapping into the type. max and min of a NaN are NaN.
#include <cmath>
#include <limits>

#include "reference/detail.h"
#include "reference/sums.h"

namespace octavo::reference {
namespace {

/// Which output element every input element goes to: strides of the output along the input's dimensions (0 when reduced).
struct Reduction {
  Ints strides;
  std::int64_t count = 1;  ///< elements that meet in one result
  bool spatial = true;     ///< only axes >= 2
};

Reduction reduction_of(const Args& a, const Ints& axes) {
  const Shape& x = a.shape(0);
  std::vector<char> reduced(x.size(), 0);
  Reduction r;
  for (const std::int64_t axis : axes) {
    reduced[idx(axis)] = 1;
    r.count *= x[idx(axis)];
    r.spatial = r.spatial && axis >= 2;
  }
  r.strides.assign(x.size(), 0);
  std::int64_t step = 1;
  for (std::size_t d = x.size(); d-- > 0;) {
    if (reduced[d]) continue;
    r.strides[d] = step;
    step *= x[d];
  }
  return r;
}

/// Folds every input element into its result with f(sum, element), in row-major order.
template <class T, class F>
std::vector<T> folded(const Args& a, const Reduction& r, const std::vector<T>& x, T start, F&& f) {
  std::vector<T> y(idx(ir::count(a.out().shape)), start);
  for_each_element(a.shape(0), {r.strides},
                   [&](std::int64_t flat, const Ints& at) { y[idx(at[0])] = f(y[idx(at[0])], x[idx(flat)]); });
  return y;
}

/// Folds every float into its result with f(sum, element), in the order of sums.h.
template <class F>
std::vector<float> summed(const Args& a, const Reduction& r, const std::vector<float>& x, F&& f) {
  const auto results = idx(ir::count(a.out().shape));
  std::vector<float> y(results, 0.0F);
  std::vector<PairwiseSum> blocks(r.count > kSumBlock ? results : 0);
  std::vector<std::int64_t> left(blocks.size(), kSumBlock);
  for_each_element(a.shape(0), {r.strides}, [&](std::int64_t flat, const Ints& at) {
    const std::size_t i = idx(at[0]);
    y[i] = f(y[i], x[idx(flat)]);
    if (blocks.empty() || --left[i] != 0) return;
    blocks[i].push(y[i]);
    y[i] = 0, left[i] = kSumBlock;
  });
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (left[i] != kSumBlock) blocks[i].push(y[i]);
    y[i] = blocks[i].total();
  }
  return y;
}

Result<Tensors> integer_codes(const Args& a, const Reduction& r, const ir::Quantizer& q) {
  OCTAVO_TRY(const auto codes, centred_codes(a, a.in[0], q));
  const std::vector<std::int64_t> wide(codes.begin(), codes.end());
  const auto sums = folded<std::int64_t>(a, r, wide, 0, [](std::int64_t sum, std::int64_t v) { return sum + v; });
  std::vector<float> y;
  for (const std::int64_t sum : sums) {
    const float scaled = static_cast<float>(sum) * q.scale[0];
    y.push_back(a.n.op == Op::reduce_mean ? scaled / static_cast<float>(r.count) : scaled);
  }
  return Tensors{from_floats(y, a.out())};
}

std::vector<float> real(const Args& a, const Reduction& r) {
  const auto x = floats(a.in[0]);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  switch (a.n.op) {
    case Op::reduce_max: return folded<float>(a, r, x, -kInf, [](float m, float v) { return v > m || std::isnan(v) ? v : m; });
    case Op::reduce_min: return folded<float>(a, r, x, kInf, [](float m, float v) { return v < m || std::isnan(v) ? v : m; });
    case Op::reduce_prod: return folded<float>(a, r, x, 1, [](float m, float v) { return m * v; });
    case Op::reduce_l2: {
      auto y = summed(a, r, x, [](float sum, float v) { return std::fma(v, v, sum); });
      for (float& v : y) v = std::sqrt(v);
      return y;
    }
    default: {
      auto y = summed(a, r, x, [](float sum, float v) { return sum + v; });
      if (a.n.op == Op::reduce_mean) {
        for (float& v : y) v /= static_cast<float>(r.count);
      }
      return y;
    }
  }
}

std::vector<std::int64_t> whole(const Args& a, const Reduction& r) {
  const auto x = integers(a.in[0]);
  using U = std::uint64_t;  // wraps
  const auto fold = [&](std::int64_t start, auto f) { return folded<std::int64_t>(a, r, x, start, f); };
  switch (a.n.op) {
    case Op::reduce_max: return fold(std::numeric_limits<std::int64_t>::min(), [](auto m, auto v) { return std::max(m, v); });
    case Op::reduce_min: return fold(std::numeric_limits<std::int64_t>::max(), [](auto m, auto v) { return std::min(m, v); });
    case Op::reduce_prod:
      return fold(1, [](auto m, auto v) { return static_cast<std::int64_t>(static_cast<U>(m) * static_cast<U>(v)); });
    default: return fold(0, [](auto m, auto v) { return static_cast<std::int64_t>(static_cast<U>(m) + static_cast<U>(v)); });
  }
}

template <class T>
std::vector<std::int64_t> arg_max(const Args& a, const std::vector<T>& x) {
  const Shape& shape = a.shape(0);
  const std::int64_t axis = a.as<ir::ArgMax>().axis, extent = shape[idx(axis)];
  const bool last = a.as<ir::ArgMax>().select_last_index;
  const std::int64_t inner = ir::dense_strides(shape)[idx(axis)], outer = extent == 0 ? 0 : ir::count(shape) / (extent * inner);
  std::vector<std::int64_t> y;
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t i = 0; i < inner; ++i) {
      std::int64_t best = 0;
      for (std::int64_t k = 1; k < extent; ++k) {
        const T v = x[idx((o * extent + k) * inner + i)], so_far = x[idx((o * extent + best) * inner + i)];
        if (v > so_far || (last && v == so_far)) best = k;
      }
      y.push_back(best);
    }
  }
  return y;
}

}  // namespace

Result<Tensors> eval_reduce(const Args& a) {
  const DType t = a.in[0].dtype();
  if (a.n.op == Op::arg_max) {
    return Tensors{from_integers(ir::is_float(t) ? arg_max(a, floats(a.in[0])) : arg_max(a, integers(a.in[0])), a.out())};
  }
  const Reduction r = reduction_of(a, a.as<ir::Reduction>().axes);
  const ir::Quantizer* q = a.grid(0);
  if ((a.n.op == Op::reduce_mean || a.n.op == Op::reduce_sum) && q && q->per_tensor() && ir::is_int8(q->type) &&
      ir::injective(*q) && r.spatial) {
    return integer_codes(a, r, *q);
  }
  if (ir::is_float(t)) return Tensors{from_floats(real(a, r), a.out())};
  return Tensors{from_integers(whole(a, r), a.out())};
}

}  // namespace octavo::reference
