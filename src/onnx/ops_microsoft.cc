// Operators that ONNX Runtime's optimizer and quantizers write into files, in terms of standard ones.
#include <array>

#include "onnx/compose.h"
#include "onnx/registry.h"

namespace octavo::onnx {
namespace {

/// alpha * A' B', the last two dimensions exchanged where trans* says so.
Status fused_matmul(NodeContext& n) {
  Compose c(n);
  if (n.attr_int("transBatchA", 0) != 0 || n.attr_int("transBatchB", 0) != 0) return n.unsupported("transBatchA or transBatchB");
  const auto turned = [&](std::size_t i, std::string_view key) {
    const std::int64_t rank = n.rank(i);
    if (n.attr_int(key, 0) == 0 || rank < 2) return n.in(i);
    Ints perm;
    for (std::int64_t d = 0; d < rank; ++d) perm.push_back(d);
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return c.transpose(n.in(i), perm);
  };
  const ValueId a = turned(0, "transA"), b = turned(1, "transB");
  const float alpha = n.attr_float("alpha", 1.0F);
  const ValueId y = c.matmul(a, b);
  return c.finish(alpha == 1.0F ? y : c.mul(y, c.number(static_cast<double>(alpha), y)));
}

ValueId gelu_of(Compose& c, ValueId x, const char* approximate) {
  return c.op(Op::gelu, {x}, {{"approximate", std::string(approximate)}});
}
/// The tanh form of Gelu, of x + bias.
Status fast_gelu(NodeContext& n) {
  Compose c(n);
  return c.finish(gelu_of(c, n.has(1) ? c.add(n.in(0), n.in(1)) : n.in(0), "tanh"));
}
Status bias_gelu(NodeContext& n) {
  Compose c(n);
  return c.finish(gelu_of(c, c.add(n.in(0), n.in(1)), "none"));
}

/// LayerNormalization of input + skip + bias; that sum is result 3. input, skip, gamma, (beta, bias)
Status skip_layer_norm(NodeContext& n) {
  Compose c(n);
  const bool simplified = n.proto().op_type() == "SkipSimplifiedLayerNormalization";
  const std::size_t bias = simplified ? 3 : 4;
  const ValueId skipped = c.add(n.in(0), n.in(1)), x = n.has(bias) ? c.add(skipped, n.in(bias)) : skipped;
  const double epsilon = static_cast<double>(n.attr_float("epsilon", simplified ? 1e-5F : 1e-12F));
  const std::int64_t last = n.rank(0) - 1;
  n.set(3, x);
  if (simplified) {
    const ValueId square = c.reduce(Op::reduce_mean, c.mul(x, x), {last}, true);
    return c.finish(c.mul(c.div(x, c.sqrt(c.add(square, c.number(epsilon, x)))), n.in(2)));
  }
  std::vector<ValueId> operands{x, n.in(2)};
  if (n.has(3)) operands.push_back(n.in(3));
  return c.finish(c.op(Op::layer_norm, operands, {{"axis", last}, {"epsilon", epsilon}}));
}

/// codes - zero point, as f32; the zero point is one number or one an output column.
ValueId centred(NodeContext& n, Compose& c, ValueId codes, std::size_t zero_point) {
  const ValueId v = c.cast(codes, DType::f32);
  return n.has(zero_point) ? c.sub(v, c.cast(n.in(zero_point), DType::f32)) : v;
}

/// A, B, a_scale, b_scale, a_zp, b_zp, bias. Sums of products of codes round above 2^24, as any sum in float32 does.
Status matmul_integer_to_float(NodeContext& n) {
  Compose c(n);
  const ValueId a = c.mul(centred(n, c, n.in(0), 4), n.in(2)), b = c.mul(centred(n, c, n.in(1), 5), n.in(3));
  const ValueId y = c.matmul(a, b);
  n.declare(0, DType::f32);
  return c.finish(n.has(6) ? c.add(y, n.in(6)) : y);
}

/// A, B, b_scale, b_zp, bias: A is quantized as DynamicQuantizeLinear does.
Status dynamic_quantize_matmul(NodeContext& n) {
  Compose c(n);
  const std::vector<ValueId> q = c.many(Op::dynamic_quantize, {n.in(0)}, 3);
  const ValueId a = c.mul(c.sub(c.cast(q[0], DType::f32), c.cast(q[2], DType::f32)), q[1]),
                b = c.mul(centred(n, c, n.in(1), 3), n.in(2));
  const ValueId y = c.matmul(a, b);
  return c.finish(n.has(4) ? c.add(y, n.in(4)) : y);
}

constexpr std::array kRows{
    OpRow{"FusedMatMul", kMicrosoft, 1, 0, 2, 2, fused_matmul},
    OpRow{"FastGelu", kMicrosoft, 1, 0, 1, 2, fast_gelu},
    OpRow{"BiasGelu", kMicrosoft, 1, 0, 2, 2, bias_gelu},
    OpRow{"SkipLayerNormalization", kMicrosoft, 1, 0, 3, 5, skip_layer_norm},
    OpRow{"SkipSimplifiedLayerNormalization", kMicrosoft, 1, 0, 3, 4, skip_layer_norm},
    OpRow{"MatMulIntegerToFloat", kMicrosoft, 1, 0, 4, 7, matmul_integer_to_float},
    OpRow{"DynamicQuantizeMatMul", kMicrosoft, 1, 0, 3, 5, dynamic_quantize_matmul},
};

}  // namespace

Family microsoft_ops() {
  return kRows;
}

}  // namespace octavo::onnx
