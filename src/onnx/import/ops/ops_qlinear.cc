// Operators on codes with their own scales (QLinear*, QGemm): each becomes dequantize, the float operator, quantize, so that one
// internal form carries all quantized models. An int32 bias is dequantized with scale fl(sx * sw), so that it is added in the
// accumulator.
#include <array>
#include <cmath>

#include "onnx/import/lower.h"
#include "onnx/import/quant_params.h"
#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

/// s32 bias [O] -> its values, with scale fl32(sx * sw[c]) and zero point 0.
Result<ValueId> dequantized_bias(NodeContext& n, ValueId bias, std::size_t x_scale, std::size_t w_scale, float factor = 1.0F) {
  if (n.type_of(bias).dtype != DType::s32) return n.bad("the bias is {}, needs s32", ir::to_string(n.type_of(bias)));
  const Tensor* sx = n.constant(x_scale);
  const Tensor* sw = n.constant(w_scale);
  if (!sx || !sw) return n.unsupported("the scales of a biased operator must be constant");
  const Shape shape = n.shape_of(bias);
  FileQuantizer f{.q = {.type = DType::s32, .scale = {}, .zero_point = {}, .axis = -1, .arith = DType::f32}, .negative = {}};
  Quantizer& q = f.q;
  for (std::int64_t c = 0; c < sw->size(); ++c) {
    const float s = factor * (static_cast<float>(sx->at(0)) * static_cast<float>(sw->at(c)));
    if (s < 0) f.negative.resize(static_cast<std::size_t>(sw->size()), 0), f.negative[static_cast<std::size_t>(c)] = 1;
    if (s == 0 || !std::isfinite(s)) return n.bad("the bias scale of channel {} (input scale x weight scale) is {}", c, s);
    q.scale.push_back(s);
    q.zero_point.push_back(0);
  }
  if (q.scale.size() > 1) {
    if (shape.empty() || shape.back() != sw->size())
      return n.bad("the bias is {}, the weights have {} scales", ir::to_string(shape), sw->size());
    q.axis = static_cast<int>(shape.size()) - 1;
  }
  return emit_dequantize(n, bias, std::move(f));
}

/// x, x_scale, x_zp, w, w_scale, w_zp, y_scale, y_zp, bias
Status qlinear_conv(NodeContext& n) {
  if (n.attr_int("channels_last", 0) != 0)
    return n.unsupported("channels_last=1; save the model without ONNX Runtime's layout optimizations");
  OCTAVO_TRY(const ValueId x, dequantized(n, 0, 1, 2, 1));
  OCTAVO_TRY(const ValueId w, dequantized(n, 3, 4, 5, 0));
  ValueId bias = n.in(8);
  if (bias != ir::kNone) {
    OCTAVO_TRY(bias, dequantized_bias(n, bias, 1, 4));
  }
  OCTAVO_TRY(const ValueId y, lower_conv(n, x, w, bias));
  return n.result(quantized(n, y, 6, 7, 1));
}

/// a, a_scale, a_zp, b, b_scale, b_zp, y_scale, y_zp
Status qlinear_matmul(NodeContext& n) {
  OCTAVO_TRY(const ValueId a, dequantized(n, 0, 1, 2, std::max<std::int64_t>(0, n.rank(0) - 2)));
  OCTAVO_TRY(const ValueId b, dequantized(n, 3, 4, 5, std::max<std::int64_t>(0, n.rank(3) - 1)));
  OCTAVO_TRY(const ValueId y, lower_matmul(n, a, b));
  return n.result(quantized(n, y, 6, 7, 1));
}

/// a, a_scale, a_zp, b, b_scale, b_zp, c, y_scale, y_zp; without y_scale the result is float. alpha joins the weight scale.
Status qgemm(NodeContext& n) {
  OCTAVO_CHECK(n.need_rank(0, 2, 2));
  OCTAVO_CHECK(n.need_rank(3, 2, 2));
  const float alpha = n.attr_float("alpha", 1.0F);
  const bool trans_a = n.attr_int("transA", 0) != 0, trans_b = n.attr_int("transB", 0) != 0;
  if (!(alpha > 0)) return n.unsupported("alpha {}; only positive factors join the weight scale", alpha);
  OCTAVO_TRY(ValueId a, dequantized(n, 0, 1, 2, trans_a ? 1 : 0));
  OCTAVO_TRY(FileQuantizer weights, read_quantizer(n, {.scale = 4,
                                                       .zero_point = 5,
                                                       .type = n.type(3).dtype,
                                                       .type_given = true,
                                                       .axis = trans_b ? 0 : 1,
                                                       .shape = n.shape(3),
                                                       .data = n.in(3)}));
  for (float& s : weights.q.scale) s *= alpha;
  OCTAVO_TRY(ValueId b, emit_dequantize(n, n.in(3), std::move(weights)));
  const Attrs swap{{"perm", Ints{1, 0}}};
  if (trans_a) {
    OCTAVO_TRY(a, n.emit(Op::transpose, {a}, swap));
  }
  if (trans_b) {
    OCTAVO_TRY(b, n.emit(Op::transpose, {b}, swap));
  }
  const std::int64_t channels = n.shape_of(b)[1];
  ValueId y = ir::kNone, c = n.in(6);
  if (c != ir::kNone) {
    const Shape shape = n.shape(6);
    if (ir::count(shape) == channels && !shape.empty() && shape.back() == channels) {
      OCTAVO_TRY(c, n.reshape(c, {channels}));
    }
    OCTAVO_TRY(c, dequantized_bias(n, c, 1, 4, alpha));
  }
  if (c != ir::kNone && n.shape_of(c) != Shape{channels}) {
    OCTAVO_TRY(y, n.emit(Op::gemm, {a, b}));
    OCTAVO_TRY(y, n.emit(Op::add, {y, c}));
  } else {
    OCTAVO_TRY(y, n.emit(Op::gemm, {a, b, c}));
  }
  if (!n.has(7)) return n.result(y);
  return n.result(quantized(n, y, 7, 8, 1));
}

/// Operand `codes` of a binary operator, one scale and one zero point.
Result<FileQuantizer> one_scale(NodeContext& n, std::size_t codes, std::size_t scale) {
  OCTAVO_TRY(FileQuantizer f, read_quantizer(n, {.scale = scale,
                                                 .zero_point = scale + 1,
                                                 .type = n.type(codes).dtype,
                                                 .type_given = true,
                                                 .axis = 0,
                                                 .shape = {},
                                                 .data = ir::kNone}));
  f.q.arith = DType::f32;
  return f;
}

/// The scale `part`, in steps of `whole`, is a number of few bits, exactly: multiples of it then fall on ties of the result's codes.
bool is_short(double part, double whole) {
  const auto quotient = static_cast<float>(part / whole);
  int exponent = 0;
  const float scaled = std::frexp(quotient, &exponent) * 512.0F;
  return std::isfinite(quotient) && quotient != 0 && scaled == std::nearbyint(scaled) &&
         static_cast<double>(quotient) * whole == part;
}

/// a, a_scale, a_zp, b, b_scale, b_zp, c_scale, c_zp. Where sums (products) may fall in the middle between two codes, because a quotient of scales is a short
/// number (equal ones; 2 to 1), they are computed in steps of the result, as ONNX Runtime does:
///     add  rne((a - za) * fl(sa / sc) + (b - zb) * fl(sb / sc)) + zc        mul  rne((a - za) * ((b - zb) * fl(sa * sb / sc))) + zc
/// so that ties are ties. Through the values in between, (a - za) * sa and a division by sc, each of which is rounded, they fall to either side. Elsewhere
/// the values are as exact, and their codes are read in one way by all readers.
template <Op op>
Status qlinear_binary(NodeContext& n) {
  OCTAVO_TRY(FileQuantizer a, one_scale(n, 0, 1));
  OCTAVO_TRY(FileQuantizer b, one_scale(n, 3, 4));
  OCTAVO_TRY(FileQuantizer c, one_scale(n, 0, 6));
  float &sa = a.q.scale[0], &sb = b.q.scale[0], &sc = c.q.scale[0];
  const double wide_a = sa, wide_b = sb, wide_c = sc;
  if (op == Op::add && (is_short(wide_a, wide_c) || is_short(wide_b, wide_c))) {
    sa /= sc, sb /= sc, sc = 1;
  } else if (op == Op::mul && is_short(wide_a * wide_b, wide_c)) {
    sb = static_cast<float>(wide_a * wide_b / wide_c), sa = 1, sc = 1;
  }
  const auto turn = [](FileQuantizer& f) { f.negative = f.q.scale[0] < 0 ? std::vector<char>{1} : std::vector<char>{}; };
  turn(a), turn(b), turn(c);
  if (sa == 0 || !std::isfinite(sa) || sb == 0 || !std::isfinite(sb))
    return n.bad("the scales of the operands, in steps of the result's, are {} and {}", sa, sb);
  OCTAVO_TRY(const ValueId x, emit_dequantize(n, n.in(0), std::move(a)));
  OCTAVO_TRY(const ValueId y, emit_dequantize(n, n.in(3), std::move(b)));
  OCTAVO_TRY(const ValueId sum, n.emit(op, {x, y}));
  return n.result(emit_quantize(n, sum, std::move(c)));
}

/// x, x_scale, x_zp, y_scale, y_zp around one float operator.
template <class Lower>
Status qlinear_unary(NodeContext& n, Lower lower) {
  OCTAVO_TRY(const ValueId x, dequantized(n, 0, 1, 2, 1));
  OCTAVO_TRY(const ValueId y, lower(x));
  return n.result(quantized(n, y, 3, 4, 1));
}

Status refuse_channels_last(NodeContext& n) {
  if (n.attr_int("channels_last", 0) == 0) return {};
  return n.unsupported("channels_last=1; save the model without ONNX Runtime's layout optimizations");
}
Status qlinear_average_pool(NodeContext& n) {
  OCTAVO_CHECK(refuse_channels_last(n));
  return qlinear_unary(n, [&](ValueId x) { return lower_average_pool(n, x); });
}
Status qlinear_global_average_pool(NodeContext& n) {
  OCTAVO_CHECK(refuse_channels_last(n));
  return qlinear_unary(n, [&](ValueId x) { return lower_global_average(n, x); });
}
Status qlinear_sigmoid(NodeContext& n) {
  return qlinear_unary(n, [&](ValueId x) { return n.emit(Op::sigmoid, {x}); });
}
Status qlinear_leaky_relu(NodeContext& n) {
  const auto alpha = static_cast<double>(n.attr_float("alpha", 0.01F));
  return qlinear_unary(n, [&](ValueId x) { return n.emit(Op::leaky_relu, {x}, {{"alpha", alpha}}); });
}
Status qlinear_softmax(NodeContext& n) {
  const std::int64_t opset = n.attr_int("opset", 13), axis = n.attr_int("axis", -1);
  return qlinear_unary(n, [&](ValueId x) { return lower_softmax(n, Op::softmax, x, axis, opset < 13); });
}

/// y_scale, y_zp, then (x, scale, zp) for each part.
Status qlinear_concat(NodeContext& n) {
  if (n.operands() < 5 || (n.operands() - 2) % 3 != 0) return n.bad("{} inputs: needs 2 and 3 for each part", n.operands());
  std::vector<ValueId> parts;
  for (std::size_t i = 2; i < n.operands(); i += 3) {
    if (!n.has(i) || !n.has(i + 1)) return n.bad("input {} is missing", n.has(i) ? i + 1 : i);
    OCTAVO_TRY(const ValueId part, dequantized(n, i, i + 1, i + 2, 1));
    parts.push_back(part);
  }
  OCTAVO_TRY(const std::int64_t axis, n.axis(n.attr_int("axis", 1), n.rank(2)));
  OCTAVO_TRY(const ValueId y, n.emit(Op::concat, parts, {{"axis", axis}}));
  return n.result(quantized(n, y, 0, 1, 1));
}

constexpr std::array kQlinearRows{
    OpRow{"QLinearConv", "", 10, 0, 8, 9, qlinear_conv},
    OpRow{"QLinearConv", kMicrosoft, 1, 0, 8, 9, qlinear_conv},
    OpRow{"QLinearMatMul", "", 10, 0, 8, 8, qlinear_matmul},
    OpRow{"QGemm", kMicrosoft, 1, 0, 6, 9, qgemm},
    OpRow{"QLinearAdd", kMicrosoft, 1, 0, 7, 8, qlinear_binary<Op::add>},
    OpRow{"QLinearMul", kMicrosoft, 1, 0, 7, 8, qlinear_binary<Op::mul>},
    OpRow{"QLinearAveragePool", kMicrosoft, 1, 0, 4, 5, qlinear_average_pool},
    OpRow{"QLinearGlobalAveragePool", kMicrosoft, 1, 0, 4, 5, qlinear_global_average_pool},
    OpRow{"QLinearSigmoid", kMicrosoft, 1, 0, 4, 5, qlinear_sigmoid},
    OpRow{"QLinearLeakyRelu", kMicrosoft, 1, 0, 4, 5, qlinear_leaky_relu},
    OpRow{"QLinearSoftmax", kMicrosoft, 1, 0, 4, 5, qlinear_softmax},
    OpRow{"QLinearConcat", kMicrosoft, 1, 0, 5, -1, qlinear_concat},
};

}  // namespace

Family qlinear_ops() {
  return kQlinearRows;
}

}  // namespace octavo::onnx
