// Types of the anchors: weighted operators, pooling, reductions, normalizations, float resizes.
#include <algorithm>
#include <cmath>

#include "ir/facts.h"
#include "ir/infer.h"

namespace octavo::ir::detail {
namespace {

using Wide = __int128;  // attributes are any 64-bit integers: sums and products of a few of them stay exact
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 40;

/// Strides, dilations and pads of conv and pooling, checked.
Result<Window> window(const Inference& at, std::size_t spatial) {
  Window w;
  OCTAVO_TRY(w.strides, at.ints("strides", spatial, 1));
  OCTAVO_TRY(w.dilations, at.ints("dilations", spatial, 1));
  OCTAVO_TRY(w.pads, at.ints("pads", 2 * spatial, 0));
  const auto all = [](const std::vector<std::int64_t>& list, std::int64_t least) {
    return std::all_of(list.begin(), list.end(), [&](std::int64_t v) { return v >= least && v <= kMaxExtent; });
  };
  OCTAVO_CHECK(at.need(all(w.strides, 1), "strides must be at least 1"));
  OCTAVO_CHECK(at.need(all(w.dilations, 1), "dilations must be at least 1"));
  OCTAVO_CHECK(at.need(all(w.pads, 0), "pads must not be negative"));
  return w;
}

Result<std::int64_t> windows(const Inference& at, const Window& w, std::size_t k, std::int64_t extent, std::int64_t kernel) {
  const Wide padded = Wide{extent} + w.pads[k] + w.pads[k + w.strides.size()];
  const Wide reach = Wide{w.dilations[k]} * (kernel - 1) + 1;
  if (kernel < 1 || reach > padded) {
    return at.error("spatial dimension {}: kernel {} with dilation {} does not fit {} padded by {} and {}", k, kernel,
                    w.dilations[k], extent, w.pads[k], w.pads[k + w.strides.size()]);
  }
  return static_cast<std::int64_t>((padded - reach) / w.strides[k] + 1);
}

Status check_bias(const Inference& at, std::int64_t channels) {
  if (!at.has(2)) return {};
  OCTAVO_CHECK(at.need_float(2));
  if (at.shape(2) != Shape{channels})
    return at.error("the bias is {}, needs [{}], one entry an output channel", to_string(at.shape(2)), channels);
  return {};
}

/// Type of a product's result: that of the data; with attribute "sums", of whole numbers, int32.
Result<DType> type_of_sums(const Inference& at) {
  OCTAVO_TRY(const std::int64_t sums, at.integer("sums", 0));
  if (sums == 0) return at.in(0).dtype;
  OCTAVO_CHECK(at.need(sums == 1, "attribute sums must be 0 or 1"));
  OCTAVO_CHECK(at.need(!at.has(2), "sums in int32 have no bias"));
  return DType::s32;
}

Result<Types> conv(const Inference& at) {
  OCTAVO_CHECK(at.need_rank(0, 3, 8));
  OCTAVO_CHECK(at.need_rank(1, at.rank(0), at.rank(0)));
  const Shape& x = at.shape(0);
  const Shape& w = at.shape(1);
  const std::size_t spatial = x.size() - 2;
  OCTAVO_TRY(const Window win, window(at, spatial));
  OCTAVO_TRY(const std::int64_t group, at.integer("group", 1));
  const bool transposed = at.op() == Op::conv_transpose;
  if (group < 1 || x[1] % group != 0) return at.error("group {} does not divide the {} input channels", group, x[1]);
  const std::int64_t in_channels = transposed ? w[0] : w[1] * group;
  if (w[1] > kMaxExtent / group || in_channels != x[1]) {
    return at.error("the weights expect {} input channels (group {}), the data has {}", in_channels, group, x[1]);
  }
  if (!transposed && w[0] % group != 0) return at.error("group {} does not divide the {} output channels", group, w[0]);
  Shape out{x[0], transposed ? w[1] * group : w[0]};
  OCTAVO_CHECK(check_bias(at, out[1]));
  if (!transposed) {
    for (std::size_t k = 0; k < spatial; ++k) {
      OCTAVO_TRY(const std::int64_t extent, windows(at, win, k, x[k + 2], w[k + 2]));
      out.push_back(extent);
    }
    OCTAVO_TRY(const DType type, type_of_sums(at));
    return Types{{type, out}};
  }
  OCTAVO_TRY(const auto extra, at.ints("output_padding", spatial, 0));
  for (std::size_t k = 0; k < spatial; ++k) {
    if (extra[k] < 0 || extra[k] > kMaxExtent) return at.error("output_padding {} must not be negative", extra[k]);
    if (x[k + 2] < 1 || w[k + 2] < 1)
      return at.error("spatial dimension {}: data {} and kernel {} must be at least 1", k, x[k + 2], w[k + 2]);
    const Wide extent = Wide{win.strides[k]} * (x[k + 2] - 1) + extra[k] + Wide{win.dilations[k]} * (w[k + 2] - 1) + 1 -
                        win.pads[k] - win.pads[k + spatial];
    if (extent < 1 || extent > kMaxExtent)
      return at.error("spatial dimension {}: pads {} and {} leave no result", k, win.pads[k], win.pads[k + spatial]);
    out.push_back(static_cast<std::int64_t>(extent));
  }
  return Types{{at.in(0).dtype, out}};
}

Result<Types> gemm(const Inference& at) {
  OCTAVO_CHECK(at.need_rank(0, 2, 2));
  OCTAVO_CHECK(at.need_rank(1, 2, 2));
  const std::int64_t m = at.shape(0)[0], k = at.shape(0)[1], n = at.shape(1)[1];
  if (k != at.shape(1)[0])
    return at.error("the data is [M={}, K={}], the weights [K={}, N={}]: the K differ", m, k, at.shape(1)[0], n);
  if (at.has(2)) {
    OCTAVO_CHECK(at.need_float(2));
    OCTAVO_TRY(const Shape sum, broadcast(at, Shape{m, n}, at.shape(2)));
    if (sum != Shape{m, n}) return at.error("the bias {} does not broadcast to [{},{}]", to_string(at.shape(2)), m, n);
  }
  OCTAVO_TRY(const DType type, type_of_sums(at));
  return Types{{type, {m, n}}};
}

Result<Types> matmul(const Inference& at) {
  OCTAVO_CHECK(at.need_rank(0, 1, 32));
  OCTAVO_CHECK(at.need_rank(1, 1, 32));
  Shape a = at.shape(0), b = at.shape(1);
  const bool row = a.size() == 1, column = b.size() == 1;  // numpy: a vector is a row on the left, a column on the right
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  if (a.back() != b[b.size() - 2]) return at.error("inner dimensions {} and {} differ", a.back(), b[b.size() - 2]);
  OCTAVO_TRY(Shape out, broadcast(at, Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2)));
  if (!row) out.push_back(a[a.size() - 2]);
  if (!column) out.push_back(b.back());
  return Types{{at.in(0).dtype, out}};
}

Result<Types> reduce(const Inference& at) {
  const bool arg = at.op() == Op::arg_max;
  const Shape& x = at.shape(0);
  OCTAVO_TRY(const std::int64_t keep, at.integer("keepdims", 1));
  std::vector<std::int64_t> axes;
  if (arg) {
    OCTAVO_TRY(const std::int64_t axis, at.axis("axis", at.rank(0), 0));
    axes = {axis};
  } else {
    OCTAVO_TRY(axes, at.ints("axes"));
  }
  if (keep != 0 && keep != 1) return at.error("keepdims is {}, must be 0 or 1", keep);
  std::vector<char> reduced(x.size(), 0);
  std::int64_t last = -1;
  for (const std::int64_t axis : axes) {
    if (axis <= last || axis >= at.rank(0))
      return at.error("axes must be ascending, without repeats, in [0, {}); found {}", at.rank(0), axis);
    reduced[static_cast<std::size_t>(axis)] = 1;
    last = axis;
  }
  Shape out;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!reduced[i]) {
      out.push_back(x[i]);
    } else if (keep) {
      out.push_back(1);
    }
    const bool has_identity = at.op() == Op::reduce_sum || at.op() == Op::reduce_prod || at.op() == Op::reduce_l2;
    if (reduced[i] && x[i] == 0 && !has_identity) return at.error("dimension {} is empty, the result is undefined", i);
  }
  return Types{{arg ? DType::s64 : at.in(0).dtype, out}};
}

Result<Types> resize(const Inference& at) {
  const Shape& x = at.shape(0);
  const auto sizes = at.node().attrs.find("sizes");
  if (sizes != at.node().attrs.end()) {
    OCTAVO_TRY(const Shape out, at.ints("sizes", x.size(), 0));
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (out[i] < 1 || x[i] < 1)
        return at.error("sizes: dimension {} goes from {} to {}, both must be at least 1", i, x[i], out[i]);
    }
    return Types{{at.in(0).dtype, out}};
  }
  const auto scales = get_floats(at.node().attrs, "scales");
  if (scales.size() != x.size())
    return at.error("attribute scales has {} entries, needs {} (or attribute sizes)", scales.size(), x.size());
  Shape out;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double extent = std::floor(static_cast<double>(x[i]) * scales[i]);
    if (!(extent >= 1) || extent > static_cast<double>(kMaxExtent))
      return at.error("scale {} of dimension {} leaves no result of {}", scales[i], i, x[i]);
    out.push_back(static_cast<std::int64_t>(extent));
  }
  return Types{{at.in(0).dtype, out}};
}

}  // namespace

Result<Types> infer_weighted(const Inference& at) {
  OCTAVO_CHECK(at.need_float(0));
  OCTAVO_CHECK(at.need_float(1));
  if (at.op() == Op::gemm) return gemm(at);
  if (at.op() == Op::matmul) return matmul(at);
  return conv(at);
}

Result<Types> infer_window(const Inference& at) {
  if (at.op() == Op::avg_pool) OCTAVO_CHECK(at.need_float(0));
  OCTAVO_CHECK(at.need(at.in(0).dtype != DType::boolean, "the operand must be a number"));
  OCTAVO_CHECK(at.need_rank(0, 3, 8));
  const Shape& x = at.shape(0);
  OCTAVO_TRY(const auto kernel, at.ints("kernel"));
  if (kernel.size() != x.size() - 2) return at.error("attribute kernel has {} entries, needs {}", kernel.size(), x.size() - 2);
  OCTAVO_TRY(const Window win, window(at, kernel.size()));
  Shape out{x[0], x[1]};
  for (std::size_t k = 0; k < kernel.size(); ++k) {
    if (kernel[k] < 1 || kernel[k] > kMaxExtent) return at.error("kernel extent {} must be at least 1", kernel[k]);
    OCTAVO_TRY(const std::int64_t extent, windows(at, win, k, x[k + 2], kernel[k]));
    out.push_back(extent);
  }
  return Types{{at.in(0).dtype, out}};
}

Result<Types> infer_reduction(const Inference& at) {
  const TensorType& x = at.in(0);
  switch (at.op()) {
    case Op::softmax:
    case Op::log_softmax: {
      OCTAVO_CHECK(at.need_float(0));
      OCTAVO_CHECK(at.axis("axis", at.rank(0), at.rank(0) - 1));
      return Types{x};
    }
    case Op::resize_linear:
    case Op::resize_cubic: OCTAVO_CHECK(at.need_float(0)); return resize(at);
    case Op::instance_norm:
      OCTAVO_CHECK(at.need_float(0));
      OCTAVO_CHECK(at.need_rank(0, 3, 8));
      OCTAVO_CHECK(at.number("epsilon"));
      for (const std::size_t i : {1U, 2U}) {
        if (at.shape(i) != Shape{x.shape[1]}) return at.error("operand {} must be [{}], one entry a channel", i, x.shape[1]);
      }
      return Types{x};
    case Op::layer_norm: {
      OCTAVO_CHECK(at.need_float(0));
      OCTAVO_CHECK(at.number("epsilon"));
      OCTAVO_TRY(const std::int64_t axis, at.axis("axis", at.rank(0), at.rank(0) - 1));
      const Shape inner(x.shape.begin() + axis, x.shape.end());
      for (std::size_t i = 1; i < at.operands(); ++i) {
        if (!at.has(i)) continue;
        OCTAVO_TRY(const Shape sum, broadcast(at, inner, at.shape(i)));
        if (sum != inner) return at.error("operand {} is {}, must broadcast to {}", i, to_string(at.shape(i)), to_string(inner));
      }
      return Types{x};
    }
    case Op::lrn: {
      OCTAVO_CHECK(at.need_float(0));
      OCTAVO_CHECK(at.need_rank(0, 2, 8));
      OCTAVO_TRY(const std::int64_t size, at.integer("size", 0));
      OCTAVO_CHECK(at.need(size >= 1, "attribute size must be at least 1"));
      for (const std::string_view key : {"alpha", "beta", "bias"}) OCTAVO_CHECK(at.number(key));
      return Types{x};
    }
    case Op::reduce_mean:
    case Op::reduce_l2: OCTAVO_CHECK(at.need_float(0)); return reduce(at);
    default: OCTAVO_CHECK(at.need(x.dtype != DType::boolean, "the operand must be a number")); return reduce(at);
  }
}

}  // namespace octavo::ir::detail
