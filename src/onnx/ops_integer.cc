// ConvInteger and MatMulInteger: int32 sums without scales. As dequantize with scale 1, the float operator, and a cast: exact while
// every sum stays below 2^24, which is proved from the weights; otherwise refused.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "onnx/lower.h"
#include "onnx/quant_params.h"
#include "onnx/registry.h"

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

/// The largest |sum| over all outputs. Output channels of constant weights lie on `axis`; unknown weights count as 255 everywhere.
double largest_sum(NodeContext& n, std::size_t weights, std::size_t zero_point, std::int64_t axis, std::int64_t terms) {
  constexpr double kWidest = 255;
  const Tensor* w = n.constant(weights);
  const Tensor* zero = n.constant(zero_point);
  if (!w || (n.has(zero_point) && !zero)) return kWidest * kWidest * static_cast<double>(terms);
  const Shape strides = ir::dense_strides(w->shape());
  const auto a = static_cast<std::size_t>(axis);
  std::vector<double> sums(static_cast<std::size_t>(w->shape()[a]), 0);
  for (std::int64_t i = 0; i < w->size(); ++i) {
    const std::int64_t c = i / strides[a] % w->shape()[a];
    const double z = zero ? zero->at(zero->size() == 1 ? 0 : c) : 0;
    sums[static_cast<std::size_t>(c)] += std::abs(w->at(i) - z);
  }
  return sums.empty() ? 0 : kWidest * *std::max_element(sums.begin(), sums.end());
}

Status exact_or_refuse(NodeContext& n, double largest) {
  constexpr double kExact = 1 << 24;
  if (largest < kExact) return {};
  return n.unsupported(
      "its int32 sums may reach {:.0f}, and above 2^24 they are not exact in the internal form; use QLinear operators or Q/DQ",
      largest);
}

/// x, w, x_zp, w_zp
Status conv_integer(NodeContext& n) {
  OCTAVO_CHECK(n.need_rank(0, 3, 8));
  OCTAVO_CHECK(n.need_rank(1, n.rank(0), n.rank(0)));
  const std::int64_t per_output = n.shape(1)[0] == 0 ? 0 : ir::count(n.shape(1)) / n.shape(1)[0];
  OCTAVO_CHECK(exact_or_refuse(n, largest_sum(n, 1, 3, 0, per_output)));
  OCTAVO_TRY(const ValueId x, centred(n, 0, 2, 1));
  OCTAVO_TRY(const ValueId w, centred(n, 1, 3, 0));
  OCTAVO_TRY(const ValueId y, lower_conv(n, x, w, ir::kNone));
  return n.result(n.cast(y, DType::s32));
}

/// a, b, a_zp, b_zp
Status matmul_integer(NodeContext& n) {
  OCTAVO_CHECK(n.need_rank(0, 1));
  OCTAVO_CHECK(n.need_rank(1, 1));
  OCTAVO_CHECK(exact_or_refuse(n, largest_sum(n, 1, 3, n.rank(1) - 1, n.shape(0).back())));
  OCTAVO_TRY(const ValueId a, centred(n, 0, 2, n.rank(0) - 2));
  OCTAVO_TRY(const ValueId b, centred(n, 1, 3, n.rank(1) - 1));
  OCTAVO_TRY(const ValueId y, lower_matmul(n, a, b));
  return n.result(n.cast(y, DType::s32));
}

constexpr std::array kRows{
    OpRow{"ConvInteger", "", 10, 0, 2, 4, conv_integer},
    OpRow{"MatMulInteger", "", 10, 0, 2, 4, matmul_integer},
};

}  // namespace

Family integer_ops() {
  return kRows;
}

}  // namespace octavo::onnx
