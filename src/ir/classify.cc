// Which conv, conv_transpose, gemm and matmul nodes are computed in integers: see IntegerAnchor in grid.h.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/causes/ir.h"
#include "ir/grid.h"

namespace octavo::ir {
namespace {

std::size_t idx(std::int64_t i) {
  return static_cast<std::size_t>(i);
}
std::string called(const Graph& g, ValueId v) {
  const std::string& name = g.nearest_name(v);
  return name.empty() ? fmt::format("%{}", v) : name;
}

/// The weights of a node seen as [outputs][K]: where an element's output channel is, and how many products meet in one sum.
struct WeightLayout {
  int axis = 0;               ///< the output-channel axis
  std::int64_t channels = 0;  ///< its extent (per group for conv_transpose)
  std::int64_t depth = 0;     ///< K, an upper bound for conv_transpose
};

WeightLayout layout_of(Op op, const Shape& w, std::int64_t group) {
  if (op == Op::gemm) return {1, w[1], w[0]};
  const std::int64_t taps = count(Shape(w.begin() + 2, w.end()));
  if (op == Op::conv) return {0, w[0], w[1] * taps};
  return {1, w[1], w[0] / std::max<std::int64_t>(group, 1) * taps};
}

/// Why the data input `x` lies on no grid: the first operator above it that selects among values of different grids, or of which
/// one has none.
Reason why_off_grid(const Graph& g, const Grids& grids, ValueId x, ValueId v) {
  const Node& n = g.producer(v);
  const auto unquantized = [&] {
    return v == x ? because<cause::input_not_quantized>(called(g, x))
                  : because<cause::input_part_not_quantized>(called(g, x), called(g, v));
  };
  const bool selects = n.op == Op::concat || n.op == Op::where || n.op == Op::max || n.op == Op::min;
  if (!selects) {
    const bool passes = has_trait(n.op, kMove) || n.op == Op::relu || n.op == Op::clip;
    if (!passes || grids.get(n.inputs[0]) != nullptr) return unquantized();
    const Reason below = why_off_grid(g, grids, x, n.inputs[0]);
    const bool of_parts = below.cause == cause::input_on_two_grids || below.values.back() != ReasonValue(called(g, n.inputs[0]));
    return of_parts ? below : unquantized();  // an unquantized operand is unquantized here as well: say it of what is read
  }
  ValueId owner = kNone;
  for (std::size_t i = n.op == Op::where ? 1 : 0; i < n.inputs.size(); ++i) {
    const Quantizer* q = grids.get(n.inputs[i]);
    if (q == nullptr) return why_off_grid(g, grids, x, n.inputs[i]);
    if (owner == kNone) owner = n.inputs[i];
    const Quantizer& first = *grids.get(owner);
    if (!(as_u8(collapse_axis(*q)) == as_u8(collapse_axis(first)))) {
      return because<cause::input_on_two_grids>(called(g, x), called(g, owner), to_string(first), called(g, n.inputs[i]),
                                                to_string(*q));
    }
  }
  return unquantized();
}

/// Of the data input `x`, on a grid with a scale a channel: the first two parts of the concat it comes from that differ; nothing if
/// it is no such value.
std::optional<Reason> differing_parts(const Graph& g, const Grids& grids, ValueId x, ValueId v) {
  const Node& n = g.producer(v);
  if (n.op != Op::concat) {
    const bool passes = n.inputs.size() == 1 && (has_trait(n.op, kMove) || n.op == Op::relu || n.op == Op::clip);
    return passes ? differing_parts(g, grids, x, n.inputs[0]) : std::nullopt;
  }
  for (const ValueId in : n.inputs) {
    const Quantizer *first = grids.get(n.inputs[0]), *q = grids.get(in);
    if (first == nullptr || q == nullptr) return std::nullopt;
    const Quantizer one = as_u8(collapse_axis(*first)), other = as_u8(collapse_axis(*q));
    if (!other.per_tensor()) return differing_parts(g, grids, x, in);
    if (!(one == other)) {
      return because<cause::input_on_two_grids>(called(g, x), called(g, n.inputs[0]), to_string(collapse_axis(*first)),
                                                called(g, in), to_string(collapse_axis(*q)));
    }
  }
  return std::nullopt;
}

std::int64_t reach(std::int64_t lo, std::int64_t hi, std::int64_t zp) {
  return std::max(std::abs(lo - zp), std::abs(hi - zp));
}

/// Largest sum of |code - zero point| over the elements that share an output channel (all groups together for conv_transpose: an
/// upper bound).
std::int64_t largest_row(const Tensor& w, const Quantizer& q, int axis) {
  const Shape strides = dense_strides(w.shape());
  std::vector<std::int64_t> sums(idx(w.shape()[idx(axis)]), 0);
  for (std::int64_t i = 0; i < w.size(); ++i) {
    const std::int64_t c = i / strides[idx(axis)] % w.shape()[idx(axis)];
    const std::int64_t code = w.dtype() == DType::s8 ? w.data<std::int8_t>()[idx(i)] : w.data<std::uint8_t>()[idx(i)];
    sums[idx(c)] += std::abs(code - q.zero_at(c));
  }
  return sums.empty() ? 0 : *std::max_element(sums.begin(), sums.end());
}

/// The bias may join the accumulator when its codes count in units of exactly sx * sw[c].
bool joins_accumulator(const Graph& g, const Node& n, const IntegerAnchor& a, std::int64_t channels, std::int64_t bound) {
  if (n.inputs.size() < 3 || !g.is_constant(n.inputs[2])) return false;
  const Node& bias = g.producer(n.inputs[2]);
  if (!bias.quantizer || bias.quantizer->type != DType::s32 || bias.payload.dtype() != DType::s32) return false;
  const Quantizer& q = *bias.quantizer;
  const Shape& shape = bias.payload.shape();
  if (shape.empty() || shape.back() != channels || bias.payload.size() != channels) return false;
  if (!q.per_tensor() && q.axis != static_cast<int>(shape.size()) - 1) return false;
  for (std::int64_t c = 0; c < channels; ++c) {
    const float unit = a.unit(c, channels);
    if (q.zero_at(c) != 0 || std::bit_cast<std::uint32_t>(q.scale_at(c)) != std::bit_cast<std::uint32_t>(unit)) return false;
    if (bound + std::abs(std::int64_t{bias.payload.data<std::int32_t>()[idx(c)]}) >= std::int64_t{1} << 31) return false;
  }
  return true;
}

/// Per channel, a depthwise convolution still has one scale a sum; with one zero point the padding is one code, too.
bool is_depthwise(const Graph& g, const Node& n, const Quantizer& x) {
  const Shape& shape = g.type(n.inputs[0]).shape;
  return n.op == Op::conv && shape.size() > 1 && get_int(n.attrs, "group", 1) == shape[1] && x.axis == 1;
}
bool one_zero_point(const Quantizer& x) {
  return std::all_of(x.zero_point.begin(), x.zero_point.end(), [&](std::int32_t z) { return z == x.zero_point[0]; });
}

/// A product of two matrices, as a rule both computed: both on 8-bit grids per tensor, and no sum can leave int32.
IntegerAnchor classify_product(const Graph& g, const Grids& grids, const Node& n) {
  IntegerAnchor a;
  const auto no = [&](Reason why) {
    a.why_float = std::move(why);
    return a;
  };
  if (g.type(n.outputs[0]).dtype != DType::f32) return no(because<cause::no_integer_form>(name_of(n.op)));
  for (std::size_t slot = 0; slot < 2; ++slot) {
    const ValueId v = n.inputs[slot];
    const std::string name = called(g, v);
    const Quantizer* q = grids.get(v);
    if (q == nullptr) return no(why_off_grid(g, grids, v, v));
    if (!q->per_tensor()) return no(because<cause::input_per_axis>(name, q->entries()));
    if (!is_int8(q->type)) return no(because<cause::input_not_8_bits>(name, name_of(q->type)));
    if (!injective(*q)) return no(because<cause::input_codes_not_unique>(name, to_string(*q)));
    (slot == 0 ? a.x : a.w) = *q;
  }
  const std::int64_t depth = g.type(n.inputs[0]).shape.back(), x = reach(a.x.lo(), a.x.hi(), a.x.zero_point[0]),
                     w = reach(a.w.lo(), a.w.hi(), a.w.zero_point[0]);
  if (depth >= (std::int64_t{1} << 31) / (x * w)) return no(because<cause::sum_beyond_int32>(depth, x, depth * w));
  a.integer = true;
  return a;
}

}  // namespace

float IntegerAnchor::unit(std::int64_t c, std::int64_t channels) const {
  // A depthwise convolution may have several outputs an input channel; conv_transpose with groups repeats its entries for every
  // group.
  const float sx = x.per_tensor() ? x.scale[0] : x.scale[idx(c / (channels / static_cast<std::int64_t>(x.entries())))];
  return sx * w.scale_at(w.per_tensor() ? 0 : c % static_cast<std::int64_t>(w.entries()));
}

IntegerAnchor classify_anchor(const Graph& g, const Grids& grids, NodeId node) {
  const Node& n = g.node(node);
  IntegerAnchor a;
  const auto no = [&](Reason why) {
    a.why_float = std::move(why);
    return a;
  };
  if (n.op == Op::matmul) return classify_product(g, grids, n);
  if (n.op != Op::conv && n.op != Op::conv_transpose && n.op != Op::gemm) return no(because<cause::no_integer_form>(name_of(n.op)));
  const std::string data = called(g, n.inputs[0]), weight_name = called(g, n.inputs[1]);
  const Quantizer* x = grids.get(n.inputs[0]);
  if (x == nullptr) return no(why_off_grid(g, grids, n.inputs[0], n.inputs[0]));
  if (const bool depthwise = is_depthwise(g, n, *x); !x->per_tensor() && !(depthwise && one_zero_point(*x))) {
    if (auto parts = differing_parts(g, grids, n.inputs[0], n.inputs[0])) return no(*std::move(parts));
    if (depthwise) return no(because<cause::input_zero_points_differ>(data, x->entries()));
    return no(because<cause::input_per_axis>(data, x->entries()));
  }
  if (!is_int8(x->type)) return no(because<cause::input_not_8_bits>(data, name_of(x->type)));
  if (!injective(*x)) return no(because<cause::input_codes_not_unique>(data, to_string(*x)));
  if (!g.is_constant(n.inputs[1])) return no(because<cause::weights_at_run_time>(weight_name));
  const Node& weights = g.producer(n.inputs[1]);
  if (!weights.quantizer) return no(because<cause::weights_not_quantized>(weight_name));
  const Quantizer w = collapse_axis(*weights.quantizer);
  if (!is_int8(w.type)) return no(because<cause::weights_not_8_bits>(weight_name, name_of(w.type)));
  const WeightLayout layout = layout_of(n.op, weights.payload.shape(), get_int(n.attrs, "group", 1));
  if (!w.per_tensor() && w.axis != layout.axis) return no(because<cause::weights_on_wrong_axis>(weight_name, w.axis, layout.axis));
  constexpr std::int64_t kLimit = std::int64_t{1} << 31;
  std::int64_t widest = 0;
  for (const std::int32_t zp : w.zero_point) widest = std::max(widest, reach(w.lo(), w.hi(), zp));
  const std::int64_t x_reach = reach(x->lo(), x->hi(), x->zero_point[0]);
  const bool small = layout.depth < kLimit / (x_reach * widest);
  std::int64_t bound = small ? layout.depth * x_reach * widest : kLimit;
  if (!small) {  // the type allows an overflow: look at the actual weights
    const std::int64_t row = largest_row(weights.payload, w, layout.axis);
    if (row >= kLimit / x_reach) {
      return no(because<cause::sum_beyond_int32>(layout.depth, x_reach, row));
    }
    bound = row * x_reach;
  }
  a.integer = true;
  a.x = *x;
  a.w = w;
  const std::int64_t group = n.op == Op::conv_transpose ? get_int(n.attrs, "group", 1) : 1;
  a.bias_in_acc = joins_accumulator(g, n, a, layout.channels * group, bound);
  return a;
}

}  // namespace octavo::ir
