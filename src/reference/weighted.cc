// conv, conv_transpose, gemm, matmul: exact integers where classify_anchor says so, fp32 in row-major order otherwise.
//
//   integer  acc = sum (x - zx) * (w - zw[o]) (+ bias codes);
//            y = fma(float(acc), fl(sx * sw[o]), bias[o]), or the product where there is no bias
//   sums     y = acc in int32, the scales are 1 (attribute "sums")
//   float    acc = fma(x, w, acc) over (input channel, taps) in row-major order, from 0;   y = acc + bias[o]
//
// Elements in padding take no part: they contribute exactly 0.
#include <limits>

#include "base/task.h"
#include "reference/detail.h"
#include "reference/inner_loops.h"

namespace octavo::reference {
namespace {

/// All three operators as one sum: for every output position a list of (tap, input position) pairs; gemm has one position and one
/// tap.
struct Geometry {
  std::int64_t batch = 1, in_channels = 1, out_channels = 1, group = 1;
  std::int64_t in_positions = 1, out_positions = 1, taps = 1;
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>>
      reads;  ///< by output position: (tap, input position), taps ascending
  [[nodiscard]] std::int64_t group_in() const { return in_channels / group; }
  [[nodiscard]] std::int64_t group_out() const { return out_channels / group; }
};

/// Input coordinate read by tap k of output o in one dimension, or -1.
struct Dimension {
  std::int64_t in, out, kernel, stride, dilation, pad;
  bool transposed;
  [[nodiscard]] std::int64_t source(std::int64_t o, std::int64_t k) const {
    if (!transposed) {
      const std::int64_t i = o * stride - pad + k * dilation;
      return i >= 0 && i < in ? i : -1;
    }
    const std::int64_t scaled = o + pad - k * dilation;
    return scaled >= 0 && scaled % stride == 0 && scaled / stride < in ? scaled / stride : -1;
  }
};

/// Advances a multi-index; false after the last.
bool next(Ints& index, const Ints& extent) {
  for (std::size_t d = index.size(); d-- > 0;) {
    if (++index[d] < extent[d]) return true;
    index[d] = 0;
  }
  return false;
}

Geometry geometry_of(const Args& a) {
  Geometry geo;
  const Shape& x = a.shape(0);
  const Shape& w = a.shape(1);
  const Shape& y = a.out().shape;
  geo.batch = x[0];
  geo.in_channels = x[1];
  geo.out_channels = y[1];
  if (a.n.op == Op::gemm) {
    geo.reads = {{{0, 0}}};
    return geo;
  }
  const auto& facts = a.as<ir::Window>();
  geo.group = facts.group;
  const std::size_t spatial = x.size() - 2;
  std::vector<Dimension> dims;
  Ints out_extent, tap_extent;
  for (std::size_t d = 0; d < spatial; ++d) {
    dims.push_back(
        {x[d + 2], y[d + 2], w[d + 2], facts.strides[d], facts.dilations[d], facts.before(d), a.n.op == Op::conv_transpose});
    geo.in_positions *= x[d + 2];
    geo.out_positions *= y[d + 2];
    geo.taps *= w[d + 2];
    out_extent.push_back(y[d + 2]);
    tap_extent.push_back(w[d + 2]);
  }
  if (geo.out_positions == 0) return geo;
  Ints o(spatial, 0);
  do {
    auto& list = geo.reads.emplace_back();
    Ints k(spatial, 0);
    std::int64_t tap = 0;
    do {
      std::int64_t at = 0;
      for (std::size_t d = 0; d < spatial && at >= 0; ++d) {
        const std::int64_t i = dims[d].source(o[d], k[d]);
        at = i < 0 ? -1 : at * dims[d].in + i;
      }
      if (at >= 0) list.emplace_back(tap, at);
      ++tap;
    } while (next(k, tap_extent));
  } while (next(o, out_extent));
  return geo;
}

/// Flat index of the weight of (output channel, input channel within the group, tap) in the operator's own layout.
std::int64_t weight_index(Op op, const Geometry& geo, std::int64_t o, std::int64_t c, std::int64_t tap) {
  switch (op) {
    case Op::gemm: return c * geo.out_channels + o;
    case Op::conv: return (o * geo.group_in() + c) * geo.taps + tap;
    default: {
      const std::int64_t channel = o / geo.group_out() * geo.group_in() + c;
      return (channel * geo.group_out() + o % geo.group_out()) * geo.taps + tap;
    }
  }
}

/// bias of (row, output channel): [O], or for gemm anything that broadcasts to [M,N].
struct Bias {
  std::vector<float> values;
  Ints strides;
  [[nodiscard]] float at(std::int64_t row, std::int64_t channel) const {
    return values[idx(row * strides[0] + channel * strides[1])];
  }
};
Bias bias_of(const Args& a) {
  const Shape rows_by_channels{a.out().shape[0], a.out().shape[1]};
  return {floats(a.in[2]), broadcast_strides(a.shape(2), rows_by_channels)};
}

Result<Tensors> integer(const Args& a, const ir::IntegerAnchor& kind) {
  const Geometry geo = geometry_of(a);
  OCTAVO_TRY(const std::vector<std::int16_t> nchw, centred_codes(a, a.in[0], kind.x));
  const std::int64_t channels = geo.in_channels, positions = geo.in_positions, depth = geo.group_in();
  std::vector<std::int16_t> x(nchw.size());  // channels innermost
  for (std::int64_t n = 0; n < geo.batch; ++n) {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t p = 0; p < positions; ++p)
        x[idx((n * positions + p) * channels + c)] = nchw[idx((n * channels + c) * positions + p)];
    }
  }
  // The same for the weights, straight from the coded constant: [output channel][tap][input channel of the group].
  const std::vector<std::int64_t> codes = integers(a.g.producer(a.n.inputs[1]).payload);
  const auto entry = [&](std::int64_t o) { return kind.w.per_tensor() ? 0 : o % static_cast<std::int64_t>(kind.w.entries()); };
  std::vector<std::int16_t> w(codes.size());
  for (std::int64_t o = 0; o < geo.out_channels; ++o) {
    for (std::int64_t tap = 0; tap < geo.taps; ++tap) {
      for (std::int64_t c = 0; c < depth; ++c) {
        const std::int64_t code = codes[idx(weight_index(a.n.op, geo, o, c, tap))];
        w[idx((o * geo.taps + tap) * depth + c)] = static_cast<std::int16_t>(code - kind.w.zero_at(entry(o)));
      }
    }
  }
  const bool has_bias = a.has(2);
  const Bias bias = has_bias && !kind.bias_in_acc ? bias_of(a) : Bias{};
  const std::vector<std::int64_t> bias_codes =
      has_bias && kind.bias_in_acc ? integers(a.g.producer(a.n.inputs[2]).payload) : std::vector<std::int64_t>{};
  const bool sums = a.out().dtype == ir::DType::s32;
  std::vector<float> y(sums ? 0 : idx(ir::count(a.out().shape)));
  Tensor whole(ir::DType::s32, sums ? a.out().shape : Shape{0});
  for (std::int64_t n = 0; n < geo.batch; ++n) {
    for (std::int64_t p = 0; p < geo.out_positions; ++p) {
      OCTAVO_CHECK(check_cancelled());
      for (std::int64_t o = 0; o < geo.out_channels; ++o) {
        std::int64_t acc = bias_codes.empty() ? 0 : bias_codes[idx(o)];
        for (const auto& [tap, at] : geo.reads[idx(p)]) {
          acc += dot(&x[idx((n * positions + at) * channels + o / geo.group_out() * depth)], &w[idx((o * geo.taps + tap) * depth)],
                     depth);
        }
        if (acc < std::numeric_limits<std::int32_t>::min() || acc > std::numeric_limits<std::int32_t>::max()) {
          return a.error(ErrorKind::internal,
                         "the accumulator of output channel {} is {}, beyond int32 (excluded by its classification)", o, acc);
        }
        if (sums) {
          whole.mutable_data<std::int32_t>()[idx((n * geo.out_channels + o) * geo.out_positions + p)] =
              static_cast<std::int32_t>(acc);
          continue;
        }
        const float scale = kind.unit(o, geo.out_channels);
        const auto value = static_cast<float>(static_cast<std::int32_t>(acc));
        y[idx((n * geo.out_channels + o) * geo.out_positions + p)] =
            bias.values.empty() ? value * scale : fused(value, scale, bias.at(n, o));
      }
    }
  }
  if (sums) return Tensors{std::move(whole)};
  return Tensors{from_floats(y, a.out())};
}

/// y[j] = float(sum of x[i] * w[i][j]) * unit: the classification excludes sums beyond int32.
void product_row(float* y, const std::int16_t* x, const std::int16_t* w, std::int64_t k, std::int64_t n, float unit) {
  std::vector<std::int32_t> acc(idx(n), 0);
  for (std::int64_t i = 0; i < k; ++i) {
    for (std::int64_t j = 0; j < n; ++j) acc[idx(j)] += std::int32_t{x[i]} * w[i * n + j];
  }
  for (std::int64_t j = 0; j < n; ++j) y[j] = static_cast<float>(acc[idx(j)]) * unit;
}

Result<Tensors> real(const Args& a) {
  const Geometry geo = geometry_of(a);
  const std::vector<float> x = floats(a.in[0]), given = floats(a.in[1]);
  const std::int64_t depth = geo.group_in(), width = geo.group_out();
  std::vector<float> w(given.size());  // [group][input channel][tap][output channel of the group]: outputs innermost
  for (std::int64_t o = 0; o < geo.out_channels; ++o) {
    for (std::int64_t c = 0; c < depth; ++c) {
      for (std::int64_t tap = 0; tap < geo.taps; ++tap) {
        w[idx((((o / width) * depth + c) * geo.taps + tap) * width + o % width)] = given[idx(weight_index(a.n.op, geo, o, c, tap))];
      }
    }
  }
  const Bias bias = a.has(2) ? bias_of(a) : Bias{};
  std::vector<float> y(idx(ir::count(a.out().shape))), acc(idx(width));
  for (std::int64_t n = 0; n < geo.batch; ++n) {
    for (std::int64_t p = 0; p < geo.out_positions; ++p) {
      OCTAVO_CHECK(check_cancelled());
      for (std::int64_t group = 0; group < geo.group; ++group) {
        std::fill(acc.begin(), acc.end(), 0.0F);
        for (std::int64_t c = 0; c < depth; ++c) {
          for (const auto& [tap, at] : geo.reads[idx(p)]) {
            fma_row(acc.data(), &w[idx(((group * depth + c) * geo.taps + tap) * width)],
                    x[idx((n * geo.in_channels + group * depth + c) * geo.in_positions + at)], width);
          }
        }
        for (std::int64_t k = 0; k < width; ++k) {
          const std::int64_t o = group * width + k;
          y[idx((n * geo.out_channels + o) * geo.out_positions + p)] =
              bias.values.empty() ? acc[idx(k)] : acc[idx(k)] + bias.at(n, o);
        }
      }
    }
  }
  return Tensors{from_floats(y, a.out())};
}

}  // namespace

Result<Tensors> eval_weighted(const Args& a) {
  const ir::IntegerAnchor kind = ir::classify_anchor(a.g, a.grids, a.id);
  if (!kind.integer && a.out().dtype != a.in[0].dtype())
    return a.error(ErrorKind::internal, "exact sums need 8-bit codes by 8-bit weights, which this product has not");
  return kind.integer ? integer(a, kind) : real(a);
}

Result<Tensors> eval_matmul(const Args& a) {
  Shape xs = a.shape(0), ws = a.shape(1);
  if (xs.size() == 1) xs.insert(xs.begin(), 1);
  if (ws.size() == 1) ws.push_back(1);
  const std::int64_t m = xs[xs.size() - 2], k = xs.back(), n = ws.back();
  const ir::IntegerAnchor kind = ir::classify_anchor(a.g, a.grids, a.id);
  std::vector<std::int16_t> x_codes, w_codes;
  std::vector<float> x, w;
  if (kind.integer) {
    OCTAVO_TRY(x_codes, centred_codes(a, a.in[0], kind.x));
    OCTAVO_TRY(w_codes, centred_codes(a, a.in[1], kind.w));
  } else {
    x = floats(a.in[0]), w = floats(a.in[1]);
  }
  const Shape x_batch(xs.begin(), xs.end() - 2), w_batch(ws.begin(), ws.end() - 2);
  Shape batch(std::max(x_batch.size(), w_batch.size()), 1);
  for (const Shape* s : {&x_batch, &w_batch}) {
    for (std::size_t d = 0; d < s->size(); ++d) {
      std::int64_t& extent = batch[d + batch.size() - s->size()];
      if ((*s)[d] != 1) extent = (*s)[d];
    }
  }
  std::vector<float> y(idx(ir::count(a.out().shape)), 0.0F);
  for_each_element(batch, {broadcast_strides(x_batch, batch), broadcast_strides(w_batch, batch)},
                   [&](std::int64_t b, const Ints& at) {
                     for (std::int64_t row = 0; row < m; ++row) {
                       if (kind.integer) {
                         product_row(&y[idx((b * m + row) * n)], &x_codes[idx((at[0] * m + row) * k)], &w_codes[idx(at[1] * k * n)],
                                     k, n, kind.unit(0, 1));
                         continue;
                       }
                       for (std::int64_t i = 0; i < k; ++i) {
                         fma_row(&y[idx((b * m + row) * n)], &w[idx((at[1] * k + i) * n)], x[idx((at[0] * m + row) * k + i)], n);
                       }
                     }
                   });
  return Tensors{from_floats(y, a.out())};
}

}  // namespace octavo::reference
