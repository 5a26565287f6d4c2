// ConvInteger and MatMulInteger: int32 sums without scales. As dequantize with scale 1, the float operator, and a cast: exact while
// every sum stays below 2^24, which the operands' values prove. Longer sums are cut into parts that do, and added in int32.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "onnx/import/compose.h"
#include "onnx/import/lower.h"
#include "onnx/import/quant_params.h"
#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

/// Codes minus zero point, as f32: a dequantize with scale 1, per tensor or along `axis`; run-time zero points too.
Result<ValueId> centred(NodeContext& n, std::size_t codes, std::size_t zero_point, std::int64_t axis) {
  const DType type = n.type(codes).dtype;
  OCTAVO_CHECK(check_code_type(n, type, false));
  if (n.has(zero_point) && n.type(zero_point).dtype != type) {
    return n.bad("the zero point is {}, the codes are {}", ir::name_of(n.type(zero_point).dtype), ir::name_of(type));
  }
  const Tensor* zero = n.constant(zero_point);
  const std::int64_t entries = n.has(zero_point) ? ir::count(n.shape(zero_point)) : 1;
  if (n.has(zero_point) && !zero) {
    Tensor one(DType::f32, n.shape(zero_point));
    for (float& v : one.mutable_data<float>()) v = 1.0F;
    Attrs attrs;
    if (entries != 1) attrs["axis"] = axis;
    const ValueId scale = n.add_constant(std::move(one));
    return n.emit(Op::dequantize_rt, {n.in(codes), scale, n.in(zero_point)}, std::move(attrs));
  }
  Quantizer q{.type = type,
              .scale = std::vector<float>(static_cast<std::size_t>(entries), 1.0F),
              .zero_point = {},
              .axis = -1,
              .arith = DType::f32};
  for (std::int64_t i = 0; i < entries; ++i) q.zero_point.push_back(zero ? static_cast<std::int32_t>(zero->at(i)) : 0);
  if (entries != 1) {
    const Shape& data = n.shape(codes);
    if (axis < 0 || axis >= n.rank(codes) || data[static_cast<std::size_t>(axis)] != entries) {
      return n.bad("{} zero points for codes {}", entries, ir::to_string(data));
    }
    q.axis = static_cast<int>(axis);
  }
  return n.emit_quantizer(Op::dequantize, n.in(codes), std::move(q));
}

/// The largest |code - zero point| of an operand: of constants what they hold, else what the type allows.
double largest(NodeContext& n, std::size_t codes, std::size_t zero_point) {
  const Tensor* w = n.constant(codes);
  const Tensor* zero = n.constant(zero_point);
  double least = n.type(codes).dtype == DType::s8 ? -128 : 0, most = least + 255;
  if (w && w->size() > 0) {
    least = most = w->at(0);
    for (std::int64_t i = 0; i < w->size(); ++i) least = std::min(least, w->at(i)), most = std::max(most, w->at(i));
  }
  double z_least = 0, z_most = 0;
  if (n.has(zero_point)) {
    z_least = n.type(codes).dtype == DType::s8 ? -128 : 0, z_most = z_least + 255;
    if (zero && zero->size() > 0) {
      z_least = z_most = zero->at(0);
      for (std::int64_t i = 0; i < zero->size(); ++i)
        z_least = std::min(z_least, zero->at(i)), z_most = std::max(z_most, zero->at(i));
    }
  }
  return std::max({most - z_least, z_most - least, 1.0});
}

/// The largest sum of |weight - zero point| over an output channel (on `axis`); infinite when it is not known now.
double largest_weights(NodeContext& n, std::size_t weights, std::size_t zero_point, std::int64_t axis) {
  const Tensor* w = n.constant(weights);
  const Tensor* zero = n.constant(zero_point);
  if (!w || (n.has(zero_point) && !zero)) return std::numeric_limits<double>::infinity();
  const Shape strides = ir::dense_strides(w->shape());
  const auto a = static_cast<std::size_t>(axis);
  std::vector<double> sums(static_cast<std::size_t>(w->shape()[a]), 0);
  for (std::int64_t i = 0; i < w->size(); ++i) {
    const std::int64_t c = i / strides[a] % w->shape()[a];
    const double z = zero ? zero->at(zero->size() == 1 ? 0 : c) : 0;
    sums[static_cast<std::size_t>(c)] += std::abs(w->at(i) - z);
  }
  return sums.empty() ? 0 : *std::max_element(sums.begin(), sums.end());
}

/// How many of `terms` products (b has its output channels on `b_axis`) can be summed in f32 exactly (below 2^24); at least one.
std::int64_t exact_terms(NodeContext& n, std::size_t a, std::size_t a_zero, std::size_t b, std::size_t b_zero, std::int64_t b_axis,
                         std::int64_t terms) {
  constexpr double kExact = 1 << 24;
  if (largest(n, a, a_zero) * largest_weights(n, b, b_zero, b_axis) < kExact) return std::max<std::int64_t>(terms, 1);
  const double each = largest(n, a, a_zero) * largest(n, b, b_zero);
  return static_cast<std::int64_t>(std::max(1.0, std::floor((kExact - 1) / each)));
}

/// Where the terms of a product with the matrix b are cut, from 0 to `terms`: into the fewest parts of about equal length whose sums are exact in f32 as
/// what the constant weights of each part prove; else into parts of `each`, which any weights allow. Cuts are multiples of kAligned where that is possible.
std::vector<std::int64_t> exact_parts(NodeContext& n, std::int64_t terms, std::int64_t each) {
  constexpr std::int64_t kAligned = 64;
  std::vector<std::int64_t> cuts;
  const Tensor *w = n.constant(1), *zero = n.constant(3);
  const std::int64_t blocks = (terms + kAligned - 1) / kAligned;
  if (w && w->shape().size() == 2 && (!n.has(3) || zero) && each >= kAligned) {
    const std::int64_t columns = w->shape()[1];
    std::vector<double> sums(static_cast<std::size_t>((blocks + 1) * columns),
                             0);  // of |weight - zero point| over the blocks before
    for (std::int64_t k = 0; k < terms; ++k) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const double z = zero ? zero->at(zero->size() == 1 ? 0 : c) : 0;
        sums[static_cast<std::size_t>((k / kAligned + 1) * columns + c)] += std::abs(w->at(k * columns + c) - z);
      }
    }
    for (std::int64_t i = columns; i < (blocks + 1) * columns; ++i)
      sums[static_cast<std::size_t>(i)] += sums[static_cast<std::size_t>(i - columns)];
    const double most = (1 << 24) / largest(n, 0, 2);
    for (std::int64_t parts = 2; parts * kAligned < terms; ++parts) {
      cuts.clear();
      bool exact = true;
      for (std::int64_t p = 0; p <= parts; ++p) cuts.push_back(blocks * p / parts);
      for (std::size_t p = 0; p + 1 < cuts.size() && exact; ++p) {
        for (std::int64_t c = 0; c < columns && exact; ++c)
          exact =
              sums[static_cast<std::size_t>(cuts[p + 1] * columns + c)] - sums[static_cast<std::size_t>(cuts[p] * columns + c)] <
              most;
      }
      if (!exact) continue;
      for (std::int64_t& cut : cuts) cut = std::min(cut * kAligned, terms);
      return cuts;
    }
    cuts.clear();
  }
  for (std::int64_t from = 0; from < terms; from += each) cuts.push_back(from);
  cuts.push_back(terms);
  return cuts;
}

/// Is every element of the value at least 0, or no number? By what computes it.
bool never_negative(const ir::Graph& g, ValueId v) {
  const ir::Node& n = g.producer(v);
  switch (n.op) {
    case Op::relu:
    case Op::sigmoid:
    case Op::hard_sigmoid:
    case Op::softmax:
    case Op::abs: return true;
    case Op::clip: return ir::get_float(n.attrs, "min", -1.0) >= 0;
    case Op::max_pool:
    case Op::reshape:
    case Op::transpose:
    case Op::slice: return never_negative(g, n.inputs[0]);
    default: return false;
  }
}

/// Is the data's zero point that of a DynamicQuantizeLinear of a value that is never negative? The range of such a value begins at 0, and so its
/// zero point is 0.
bool zero_is_zero(NodeContext& n) {
  if (!n.has(2) || n.constant(2) != nullptr) return false;
  const ir::Node& made = n.graph().producer(n.in(2));
  return made.op == Op::dynamic_quantize && made.outputs.size() == 3 && made.outputs[2] == n.in(2) &&
         n.type(0).dtype == DType::u8 && never_negative(n.graph(), made.inputs[0]);
}

/// True if the data's zero point is one number that only a run knows (DynamicQuantizeLinear), and the weights are constant codes.
/// Codes minus such a zero point lie on no grid, so that the sums would be floats. It is multiplied separately then:
///     sum (x - z) * w = sum x * w - z * sum w,
/// where sum x * w is integer and sum w, over the taps inside the data, constant. All stay below 2^24: exact in f32.
bool late_zero(const NodeContext& n) {
  const bool late = n.has(2) && n.constant(2) == nullptr && ir::count(n.shape(2)) == 1 && n.type(2).dtype == n.type(0).dtype;
  return late && n.constant(1) != nullptr && (!n.has(3) || n.constant(3) != nullptr);
}

/// The data's codes as they are: zero point 0.
Result<ValueId> raw_codes(NodeContext& n) {
  OCTAVO_CHECK(check_code_type(n, n.type(0).dtype, false));
  return n.emit_quantizer(Op::dequantize, n.in(0), {.type = n.type(0).dtype, .scale = {1.0F}, .zero_point = {0}});
}

/// Weights minus their zero points, summed over `over` of [outer][over][inner]; output channels are `outer`, or `inner` if outer
/// is 1.
Tensor weight_sums(const NodeContext& n, Shape shape, std::int64_t outer, std::int64_t over, std::int64_t inner) {
  const Tensor& w = *n.constant(1);
  const Tensor* zero = n.has(3) ? n.constant(3) : nullptr;
  Tensor sums(DType::f32, std::move(shape));
  const auto out = sums.mutable_data<float>();
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t i = 0; i < inner; ++i) {
      const double z = zero ? zero->at(zero->size() == 1 ? 0 : outer == 1 ? i : o) : 0;
      double sum = 0;
      for (std::int64_t k = 0; k < over; ++k) sum += w.at((o * over + k) * inner + i) - z;
      out[static_cast<std::size_t>(o * inner + i)] = static_cast<float>(sum);
    }
  }
  return sums;
}

/// y - z * sums, in int32 where y is: sums of several parts.
Result<ValueId> without_zero(NodeContext& n, ValueId y, Tensor sums) {
  const DType type = n.graph().type(y).dtype;
  if (type == DType::s32) {
    Tensor whole(DType::s32, sums.shape());
    std::transform(sums.data<float>().begin(), sums.data<float>().end(), whole.mutable_data<std::int32_t>().begin(),
                   [](float s) { return static_cast<std::int32_t>(s); });
    sums = std::move(whole);
  }
  OCTAVO_TRY(const ValueId z, n.cast(n.in(2), type));
  OCTAVO_TRY(const ValueId share, n.emit(Op::mul, {z, n.add_constant(std::move(sums))}));
  return n.emit(Op::sub, {y, share});
}
Result<ValueId> without_zero(NodeContext& n, ValueId y, ValueId sums) {
  OCTAVO_TRY(const ValueId z, n.cast(n.in(2), DType::f32));
  OCTAVO_TRY(const ValueId share, n.emit(Op::mul, {z, sums}));
  return n.emit(Op::sub, {y, share});
}

/// sum w of each place of a convolution's result y: a convolution of ones. Without padding all places are alike, and one will do.
Result<ValueId> taps_inside(NodeContext& n, ValueId y) {
  Attrs attrs = n.graph().node(n.graph().value(y).producer).attrs;
  const Shape w = n.shape(1);
  const std::int64_t taps = ir::count(Shape(w.begin() + 2, w.end()));
  Shape one = w, extents = n.shape(0);
  one[1] = 1;
  extents[0] = extents[1] = 1;
  const auto pads = ir::get_ints(attrs, "pads"), dilations = ir::get_ints(attrs, "dilations");
  if (std::all_of(pads.begin(), pads.end(), [](std::int64_t p) { return p == 0; })) {
    for (std::size_t d = 2; d < w.size(); ++d) extents[d] = (w[d] - 1) * (dilations.empty() ? 1 : dilations[d - 2]) + 1;
  }
  Tensor ones(DType::f32, extents);
  for (float& v : ones.mutable_data<float>()) v = 1.0F;
  attrs["group"] = std::int64_t{1};
  const ValueId sums = n.add_constant(weight_sums(n, one, w[0], w[1], taps));
  return n.emit(Op::conv, {n.add_constant(std::move(ones)), sums}, std::move(attrs));
}

/// Rows of the constant matrix b, whose codes minus zero points are `b`: a constant too, as products with constant weights want it.
Result<ValueId> constant_rows(NodeContext& n, ValueId b, std::int64_t from, std::int64_t to) {
  const Tensor& w = *n.constant(1);
  const std::int64_t row = w.shape()[1] * static_cast<std::int64_t>(ir::size_of(w.dtype()));
  Tensor part(w.dtype(), {to - from, w.shape()[1]});
  std::copy_n(w.bytes().begin() + from * row, (to - from) * row, part.mutable_bytes().begin());
  Quantizer q = *n.graph().producer(b).quantizer;
  return n.emit_quantizer(Op::dequantize, n.add_constant(std::move(part)), std::move(q));
}

/// x, w, x_zp, w_zp. Too many terms for one f32 sum: parts of the input channels, summed in int32.
Status conv_integer(NodeContext& n) {
  OCTAVO_CHECK(n.need_rank(0, 3, 8));
  OCTAVO_CHECK(n.need_rank(1, n.rank(0), n.rank(0)));
  Compose c(n);
  const Shape w_shape = n.shape(1);
  const std::int64_t terms = w_shape[0] == 0 ? 0 : ir::count(w_shape) / w_shape[0], channels = w_shape[1];
  const std::int64_t exact = exact_terms(n, 0, 2, 1, 3, 0, terms), taps = channels == 0 ? 0 : terms / channels;
  const bool none = zero_is_zero(n), late = !none && terms <= exact && late_zero(n);
  OCTAVO_TRY(const ValueId x, late || none ? raw_codes(n) : centred(n, 0, 2, 1));
  OCTAVO_TRY(const ValueId w, centred(n, 1, 3, 0));
  if (terms <= exact) {
    OCTAVO_TRY(ValueId y, lower_conv(n, x, w, ir::kNone));
    if (late) {
      OCTAVO_TRY(const ValueId sums, taps_inside(n, y));
      OCTAVO_TRY(y, without_zero(n, y, sums));
    }
    return n.result(n.cast(y, DType::s32));
  }
  if (taps > exact || n.attr_int("group", 1) != 1) {
    return n.unsupported("its int32 sums of {} products may pass 2^24 and cannot be split by channels; use QLinearConv or Q/DQ",
                         terms);
  }
  const std::int64_t each = exact / taps;
  ValueId sum = ir::kNone;
  for (std::int64_t from = 0; from < channels; from += each) {
    const std::int64_t to = std::min(channels, from + each);
    const ValueId x_part = c.slice(x, 1, from, to), w_part = c.slice(w, 1, from, to);
    OCTAVO_CHECK(c.status());
    OCTAVO_TRY(const ValueId y, lower_conv(n, x_part, w_part, ir::kNone));
    const ValueId part = c.cast(y, DType::s32);
    sum = sum == ir::kNone ? part : c.add(sum, part);
  }
  return c.finish(sum);
}

/// a, b, a_zp, b_zp. Too many terms for one f32 sum: parts, summed in int32.
Status matmul_integer(NodeContext& n) {
  OCTAVO_CHECK(n.need_rank(0, 1));
  OCTAVO_CHECK(n.need_rank(1, 1));
  Compose c(n);
  const std::int64_t terms = n.shape(0).back(), each = exact_terms(n, 0, 2, 1, 3, n.rank(1) - 1, terms);
  const bool none = zero_is_zero(n),
             late = !none && n.rank(1) == 2 && terms < (1 << 16) && late_zero(n);  // sums of weights are exact in f32
  OCTAVO_TRY(const ValueId a, late || none ? raw_codes(n) : centred(n, 0, 2, n.rank(0) - 2));
  OCTAVO_TRY(const ValueId b, centred(n, 1, 3, n.rank(1) - 1));
  const auto sums = [&] {
    const Shape& w = n.shape(1);
    return weight_sums(n, {w[1]}, 1, w[0], w[1]);
  };
  if (each >= terms) {
    OCTAVO_TRY(ValueId y, lower_matmul(n, a, b));
    if (late) {
      OCTAVO_TRY(y, without_zero(n, y, sums()));
    }
    return n.result(n.cast(y, DType::s32));
  }
  const std::int64_t b_axis = n.rank(1) == 1 ? 0 : n.rank(1) - 2;
  if (n.shape(1)[static_cast<std::size_t>(b_axis)] != terms)
    return n.bad("{} and {}: the inner dimensions differ", ir::to_string(n.shape(0)), ir::to_string(n.shape(1)));
  const std::vector<std::int64_t> cuts = exact_parts(n, terms, each);
  ValueId sum = ir::kNone;
  for (std::size_t k = 0; k + 1 < cuts.size(); ++k) {
    const std::int64_t from = cuts[k], to = cuts[k + 1];
    const ValueId a_part = c.slice(a, n.rank(0) - 1, from, to);
    ValueId b_part = ir::kNone;
    if (n.constant(1) != nullptr && n.rank(1) == 2 && n.graph().producer(b).quantizer) {
      OCTAVO_TRY(b_part, constant_rows(n, b, from, to));
    } else {
      b_part = c.slice(b, b_axis, from, to);
    }
    OCTAVO_CHECK(c.status());
    OCTAVO_TRY(const ValueId y, lower_matmul(n, a_part, b_part));
    const ValueId part = c.cast(y, DType::s32);
    sum = sum == ir::kNone ? part : c.add(sum, part);
  }
  if (late) {
    OCTAVO_CHECK(c.status());
    OCTAVO_TRY(sum, without_zero(n, sum, sums()));
  }
  return c.finish(sum);
}

constexpr std::array kIntegerRows{
    OpRow{"ConvInteger", "", 10, 0, 2, 4, conv_integer},
    OpRow{"MatMulInteger", "", 10, 0, 2, 4, matmul_integer},
};

}  // namespace

Family integer_ops() {
  return kIntegerRows;
}

}  // namespace octavo::onnx
