// ConvInteger and MatMulInteger: int32 sums without scales. As dequantize with scale 1, the float operator, and a cast: exact while
// every sum stays below 2^24, which the operands' values prove. Longer sums of codes by constant codes are an operator with int32 results
// (attribute "sums"); others are cut into parts that stay below 2^24, and added in int32.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "onnx/import/coded.h"
#include "onnx/import/compose.h"
#include "onnx/import/lower.h"
#include "onnx/import/quant_params.h"
#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

/// What a sum of products multiplies: data, weights, their zero points (kNone: 0).
struct Codes {
  NodeContext& n;
  std::array<ValueId, 4> of = {};
  [[nodiscard]] ValueId in(std::size_t i) const { return of[i]; }
  [[nodiscard]] bool has(std::size_t i) const { return of[i] != ir::kNone; }
  [[nodiscard]] const ir::TensorType& type(std::size_t i) const { return n.type_of(of[i]); }
  [[nodiscard]] const Shape& shape(std::size_t i) const { return type(i).shape; }
  [[nodiscard]] std::int64_t rank(std::size_t i) const { return static_cast<std::int64_t>(shape(i).size()); }
  /// The elements where they are known now, else nullptr. Valid until the next emit.
  [[nodiscard]] const Tensor* constant(std::size_t i) const {
    return has(i) && is_plain_constant(n.graph(), of[i]) ? &n.graph().payload(of[i]) : nullptr;
  }
};

/// Codes, and a zero point of their type: one number, or one for each entry of `axis`. Everything below relies on that.
Status check_codes(const Codes& p, std::size_t codes, std::size_t zero_point, std::int64_t axis) {
  const DType type = p.type(codes).dtype;
  OCTAVO_CHECK(check_code_type(p.n, type, false));
  if (!p.has(zero_point)) return {};
  if (p.type(zero_point).dtype != type)
    return p.n.bad("the zero point is {}, the codes are {}", ir::name_of(p.type(zero_point).dtype), ir::name_of(type));
  const std::int64_t entries = ir::count(p.shape(zero_point));
  const Shape& data = p.shape(codes);
  if (entries != 1 && (axis < 0 || axis >= p.rank(codes) || data[static_cast<std::size_t>(axis)] != entries))
    return p.n.bad("{} zero points for codes {}", entries, ir::to_string(data));
  return {};
}

/// Codes minus zero point, as f32: a dequantize with scale 1, per tensor or along `axis`; run-time zero points too.
Result<ValueId> centred(const Codes& p, std::size_t codes, std::size_t zero_point, std::int64_t axis) {
  const DType type = p.type(codes).dtype;
  const Tensor* zero = p.constant(zero_point);
  const std::int64_t entries = p.has(zero_point) ? ir::count(p.shape(zero_point)) : 1;
  if (p.has(zero_point) && !zero) {
    Tensor one(DType::f32, p.shape(zero_point));
    for (float& v : one.mutable_data<float>()) v = 1.0F;
    Attrs attrs;
    if (entries != 1) attrs["axis"] = axis;
    const ValueId scale = p.n.add_constant(std::move(one));
    return p.n.emit(Op::dequantize_rt, {p.in(codes), scale, p.in(zero_point)}, std::move(attrs));
  }
  Quantizer q{.type = type,
              .scale = std::vector<float>(static_cast<std::size_t>(entries), 1.0F),
              .zero_point = {},
              .axis = -1,
              .arith = DType::f32};
  for (std::int64_t i = 0; i < entries; ++i) q.zero_point.push_back(zero ? static_cast<std::int32_t>(zero->at(i)) : 0);
  if (entries != 1) q.axis = static_cast<int>(axis);
  return p.n.emit_quantizer(Op::dequantize, p.in(codes), std::move(q));
}

/// The largest |code - zero point| of an operand: of constants what they hold, else what the type allows.
double largest(const Codes& p, std::size_t codes, std::size_t zero_point) {
  const Tensor* w = p.constant(codes);
  const Tensor* zero = p.constant(zero_point);
  double least = p.type(codes).dtype == DType::s8 ? -128 : 0, most = least + 255;
  if (w && w->size() > 0) {
    least = most = w->at(0);
    for (std::int64_t i = 0; i < w->size(); ++i) least = std::min(least, w->at(i)), most = std::max(most, w->at(i));
  }
  double z_least = 0, z_most = 0;
  if (p.has(zero_point)) {
    z_least = p.type(codes).dtype == DType::s8 ? -128 : 0, z_most = z_least + 255;
    if (zero && zero->size() > 0) {
      z_least = z_most = zero->at(0);
      for (std::int64_t i = 0; i < zero->size(); ++i)
        z_least = std::min(z_least, zero->at(i)), z_most = std::max(z_most, zero->at(i));
    }
  }
  return std::max({most - z_least, z_most - least, 1.0});
}

/// The largest sum of |weight - zero point| over an output channel (on `axis`); infinite when it is not known now.
double largest_weights(const Codes& p, std::size_t weights, std::size_t zero_point, std::int64_t axis) {
  const Tensor* w = p.constant(weights);
  const Tensor* zero = p.constant(zero_point);
  if (!w || (p.has(zero_point) && !zero)) return std::numeric_limits<double>::infinity();
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
std::int64_t exact_terms(const Codes& p, std::size_t a, std::size_t a_zero, std::size_t b, std::size_t b_zero, std::int64_t b_axis,
                         std::int64_t terms) {
  constexpr double kExact = 1 << 24;
  if (largest(p, a, a_zero) * largest_weights(p, b, b_zero, b_axis) < kExact) return std::max<std::int64_t>(terms, 1);
  const double each = largest(p, a, a_zero) * largest(p, b, b_zero);
  return static_cast<std::int64_t>(std::max(1.0, std::floor((kExact - 1) / each)));
}

/// Are the sums those of an operator with int32 results? Then it is computed in integers wherever it runs: constant 8-bit weights, one zero
/// point for all data, and no sum beyond int32.
bool in_int32(const Codes& p, bool late, std::int64_t channel_axis) {
  if (p.constant(1) == nullptr || p.constant(0) != nullptr || (p.has(3) && p.constant(3) == nullptr)) return false;
  const bool one_zero = !p.has(2) || late || (p.constant(2) != nullptr && p.constant(2)->size() == 1);
  constexpr double kMost = (std::int64_t{1} << 31) - 1;
  return one_zero && 255 * largest_weights(p, 1, 3, channel_axis) < kMost;
}
const ir::Attrs kInInt32{{"sums", std::int64_t{1}}};

/// Where the terms of a product with the matrix b are cut, from 0 to `terms`: into the fewest parts of about equal length whose sums are exact in f32 as
/// what the constant weights of each part prove; else into parts of `each`, which any weights allow. Cuts are multiples of kAligned where that is possible.
std::vector<std::int64_t> exact_parts(const Codes& p, std::int64_t terms, std::int64_t each) {
  constexpr std::int64_t kAligned = 64;
  std::vector<std::int64_t> cuts;
  const Tensor *w = p.constant(1), *zero = p.constant(3);
  const std::int64_t blocks = (terms + kAligned - 1) / kAligned;
  if (w && w->shape().size() == 2 && (!p.has(3) || zero) && each >= kAligned) {
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
    const double most = (1 << 24) / largest(p, 0, 2);
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
bool zero_is_zero(const Codes& p) {
  if (!p.has(2) || p.constant(2) != nullptr) return false;
  const ir::Node& made = p.n.graph().producer(p.in(2));
  return made.op == Op::dynamic_quantize && made.outputs.size() == 3 && made.outputs[2] == p.in(2) &&
         p.type(0).dtype == DType::u8 && never_negative(p.n.graph(), made.inputs[0]);
}

/// True if the data's zero point is one number that only a run knows (DynamicQuantizeLinear), and the weights are constant codes.
/// Codes minus such a zero point lie on no grid, so that the sums would be floats. It is multiplied separately then:
///     sum (x - z) * w = sum x * w - z * sum w,
/// where sum x * w is integer and sum w, over the taps inside the data, constant. Exact in f32 where all stay below 2^24, else in int32.
bool late_zero(const Codes& p) {
  const bool late = p.has(2) && p.constant(2) == nullptr && ir::count(p.shape(2)) == 1 && p.type(2).dtype == p.type(0).dtype;
  return late && p.constant(1) != nullptr && (!p.has(3) || p.constant(3) != nullptr);
}

/// The data's codes as they are: zero point 0.
Result<ValueId> raw_codes(const Codes& p) {
  return p.n.emit_quantizer(Op::dequantize, p.in(0), {.type = p.type(0).dtype, .scale = {1.0F}, .zero_point = {0}});
}

/// Weights minus their zero points, summed over `over` of [outer][over][inner]; output channels are `outer`, or `inner` if outer
/// is 1.
Tensor weight_sums(const Codes& p, Shape shape, std::int64_t outer, std::int64_t over, std::int64_t inner) {
  const Tensor& w = *p.constant(1);
  const Tensor* zero = p.has(3) ? p.constant(3) : nullptr;
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
Result<ValueId> without_zero(const Codes& p, ValueId y, Tensor sums) {
  const DType type = p.n.graph().type(y).dtype;
  if (type == DType::s32) {
    Tensor whole(DType::s32, sums.shape());
    std::transform(sums.data<float>().begin(), sums.data<float>().end(), whole.mutable_data<std::int32_t>().begin(),
                   [](float s) { return static_cast<std::int32_t>(s); });
    sums = std::move(whole);
  }
  OCTAVO_TRY(const ValueId z, p.n.cast(p.in(2), type));
  OCTAVO_TRY(const ValueId share, p.n.emit(Op::mul, {z, p.n.add_constant(std::move(sums))}));
  return p.n.emit(Op::sub, {y, share});
}
Result<ValueId> without_zero(const Codes& p, ValueId y, ValueId sums) {
  const DType type = p.n.graph().type(y).dtype;
  OCTAVO_TRY(const ValueId z, p.n.cast(p.in(2), type));
  OCTAVO_TRY(sums, p.n.cast(sums, type));
  OCTAVO_TRY(const ValueId share, p.n.emit(Op::mul, {z, sums}));
  return p.n.emit(Op::sub, {y, share});
}

/// sum w of each place of a convolution's result y: a convolution of ones. Without padding all places are alike, and one will do.
Result<ValueId> taps_inside(const Codes& p, ValueId y) {
  Attrs attrs = p.n.graph().node(p.n.graph().value(y).producer).attrs;
  const Shape w = p.shape(1);
  const std::int64_t taps = ir::count(Shape(w.begin() + 2, w.end()));
  Shape one = w, extents = p.shape(0);
  one[1] = 1;
  extents[0] = extents[1] = 1;
  const auto pads = ir::get_ints(attrs, "pads"), dilations = ir::get_ints(attrs, "dilations");
  if (std::all_of(pads.begin(), pads.end(), [](std::int64_t p) { return p == 0; })) {
    for (std::size_t d = 2; d < w.size(); ++d) extents[d] = (w[d] - 1) * (dilations.empty() ? 1 : dilations[d - 2]) + 1;
  }
  Tensor ones(DType::f32, extents);
  for (float& v : ones.mutable_data<float>()) v = 1.0F;
  attrs["group"] = std::int64_t{1}, attrs.erase("sums");
  const ValueId sums = p.n.add_constant(weight_sums(p, one, w[0], w[1], taps));
  return p.n.emit(Op::conv, {p.n.add_constant(std::move(ones)), sums}, std::move(attrs));
}

/// Rows of the constant matrix b, whose codes minus zero points are `b`: a constant too, as products with constant weights want it.
Result<ValueId> constant_rows(const Codes& p, ValueId b, std::int64_t from, std::int64_t to) {
  const Tensor& w = *p.constant(1);
  const std::int64_t row = w.shape()[1] * static_cast<std::int64_t>(ir::size_of(w.dtype()));
  Tensor part(w.dtype(), {to - from, w.shape()[1]});
  std::copy_n(w.bytes().begin() + from * row, (to - from) * row, part.mutable_bytes().begin());
  Quantizer q = *p.n.graph().producer(b).quantizer;
  return p.n.emit_quantizer(Op::dequantize, p.n.add_constant(std::move(part)), std::move(q));
}

/// x, w, x_zp, w_zp. Too many terms for one f32 sum: parts of the input channels, summed in int32.
Status conv_integer(NodeContext& n) {
  OCTAVO_CHECK(n.need_rank(0, 3, 8));
  OCTAVO_CHECK(n.need_rank(1, n.rank(0), n.rank(0)));
  Compose c(n);
  const Codes p{n, {n.in(0), n.in(1), n.in(2), n.in(3)}};
  OCTAVO_CHECK(check_codes(p, 0, 2, 1));
  OCTAVO_CHECK(check_codes(p, 1, 3, 0));
  const Shape w_shape = p.shape(1);
  const std::int64_t terms = w_shape[0] == 0 ? 0 : ir::count(w_shape) / w_shape[0], channels = w_shape[1];
  const std::int64_t exact = exact_terms(p, 0, 2, 1, 3, 0, terms), taps = channels == 0 ? 0 : terms / channels;
  const bool none = zero_is_zero(p), late = !none && terms < (1 << 16) && late_zero(p), whole = in_int32(p, none || late, 0);
  const bool cut = terms > exact && !whole;
  OCTAVO_TRY(const ValueId x, (late && !cut) || none ? raw_codes(p) : centred(p, 0, 2, 1));
  OCTAVO_TRY(const ValueId w, centred(p, 1, 3, 0));
  if (!cut) {
    OCTAVO_TRY(ValueId y, lower_conv(n, x, w, ir::kNone, terms > exact ? kInInt32 : ir::Attrs{}));
    if (late) {
      OCTAVO_TRY(const ValueId sums, taps_inside(p, y));
      OCTAVO_TRY(y, without_zero(p, y, sums));
    }
    return n.result(terms > exact ? Result<ValueId>(y) : n.cast(y, DType::s32));
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

/// a, b, a_zp, b_zp.
Status matmul_integer(NodeContext& n) {
  return n.result(lower_integer_matmul(n, n.in(0), n.in(1), n.in(2), n.in(3)));
}

constexpr std::array kIntegerRows{
    OpRow{"ConvInteger", "", 10, 0, 2, 4, conv_integer},
    OpRow{"MatMulInteger", "", 10, 0, 2, 4, matmul_integer},
};

}  // namespace

Family integer_ops() {
  return kIntegerRows;
}

Result<ValueId> lower_integer_matmul(NodeContext& n, ValueId data, ValueId weights, ValueId data_zero, ValueId weights_zero) {
  Compose c(n);
  const Codes p{n, {data, weights, data_zero, weights_zero}};
  if (p.rank(0) < 1 || p.rank(1) < 1)
    return n.bad("{} and {}: a number is no matrix", ir::to_string(p.shape(0)), ir::to_string(p.shape(1)));
  OCTAVO_CHECK(check_codes(p, 0, 2, p.rank(0) - 2));
  OCTAVO_CHECK(check_codes(p, 1, 3, p.rank(1) - 1));
  const std::int64_t terms = p.shape(0).back(), each = exact_terms(p, 0, 2, 1, 3, p.rank(1) - 1, terms);
  const bool none = zero_is_zero(p),
             late = !none && p.rank(1) == 2 && terms < (1 << 16) && late_zero(p);  // sums of weights are exact in f32
  OCTAVO_TRY(const ValueId a, late || none ? raw_codes(p) : centred(p, 0, 2, p.rank(0) - 2));
  OCTAVO_TRY(const ValueId b, centred(p, 1, 3, p.rank(1) - 1));
  const auto sums = [&] {
    const Shape& w = p.shape(1);
    return weight_sums(p, {w[1]}, 1, w[0], w[1]);
  };
  const bool whole = p.rank(0) >= 2 && p.rank(1) == 2 && p.shape(1)[0] == terms && in_int32(p, none || late, 1);
  if (each >= terms || whole) {
    OCTAVO_TRY(ValueId y, lower_matmul(n, a, b, each >= terms ? ir::Attrs{} : kInInt32));
    if (late) {
      OCTAVO_TRY(y, without_zero(p, y, sums()));
    }
    return each >= terms ? n.cast(y, DType::s32) : Result<ValueId>(y);
  }
  const std::int64_t b_axis = p.rank(1) == 1 ? 0 : p.rank(1) - 2;
  if (p.shape(1)[static_cast<std::size_t>(b_axis)] != terms)
    return n.bad("{} and {}: the inner dimensions differ", ir::to_string(p.shape(0)), ir::to_string(p.shape(1)));
  const std::vector<std::int64_t> cuts = exact_parts(p, terms, each);
  ValueId sum = ir::kNone;
  for (std::size_t k = 0; k + 1 < cuts.size(); ++k) {
    const std::int64_t from = cuts[k], to = cuts[k + 1];
    const ValueId a_part = c.slice(a, p.rank(0) - 1, from, to);
    ValueId b_part = ir::kNone;
    if (p.constant(1) != nullptr && p.rank(1) == 2 && n.graph().producer(b).quantizer) {
      OCTAVO_TRY(b_part, constant_rows(p, b, from, to));
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
    OCTAVO_TRY(sum, without_zero(p, sum, sums()));
  }
  OCTAVO_CHECK(c.status());
  return sum;
}

}  // namespace octavo::onnx
