// Operators that ONNX Runtime's optimizer and quantizers write into files, in terms of standard ones.
#include <array>

#include "onnx/import/compose.h"
#include "onnx/import/lower.h"
#include "onnx/import/registry.h"

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
  OCTAVO_CHECK(c.status());
  OCTAVO_TRY(const ValueId y, lower_matmul(n, a, b));
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

/// The tanh form of Gelu, of X W + bias.
Status gemm_fast_gelu(NodeContext& n) {
  Compose c(n);
  OCTAVO_TRY(ValueId y, lower_matmul(n, n.in(0), n.in(1)));
  if (n.has(2)) y = c.add(y, n.in(2));
  return c.finish(gelu_of(c, y, "tanh"));
}
/// X + bias + skip
Status bias_add(NodeContext& n) {
  Compose c(n);
  return c.finish(c.add(c.add(n.in(0), n.in(1)), n.in(2)));
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

/// float(sums of products of codes) * (a_scale * b_scale) + bias; b_scale is one number, or one an output column.
Status scaled_product(NodeContext& n, Compose& c, const std::array<ValueId, 2>& codes, const std::array<ValueId, 2>& zero_points,
                      const std::array<ValueId, 2>& scales, ValueId bias) {
  OCTAVO_TRY(const ValueId sums, lower_integer_matmul(n, codes[0], codes[1], zero_points[0], zero_points[1]));
  const ValueId y = c.mul(c.cast(sums, DType::f32), c.mul(scales[0], scales[1]));
  n.declare(0, DType::f32);
  return c.finish(bias == ir::kNone ? y : c.add(y, bias));
}

/// A, B, a_scale, b_scale, a_zp, b_zp, bias.
Status matmul_integer_to_float(NodeContext& n) {
  OCTAVO_CHECK(n.need_rank(0, 1));
  OCTAVO_CHECK(n.need_rank(1, 1));
  Compose c(n);
  return scaled_product(n, c, {n.in(0), n.in(1)}, {n.in(4), n.in(5)}, {n.in(2), n.in(3)}, n.in(6));
}

/// (codes - zero point) * scale of X as DynamicQuantizeLinear codes it.
ValueId coded_at_run_time(Compose& c, ValueId x) {
  const std::vector<ValueId> q = c.many(Op::dynamic_quantize, {x}, 3);
  return c.mul(c.sub(c.cast(q[0], DType::f32), c.cast(q[2], DType::f32)), q[1]);
}

/// A, B, b_scale, b_zp, bias: A is quantized as DynamicQuantizeLinear does.
Status dynamic_quantize_matmul(NodeContext& n) {
  OCTAVO_CHECK(n.need_rank(0, 1));
  OCTAVO_CHECK(n.need_rank(1, 1));
  Compose c(n);
  const std::vector<ValueId> a = c.many(Op::dynamic_quantize, {n.in(0)}, 3);
  OCTAVO_CHECK(c.status());
  return scaled_product(n, c, {a[0], n.in(1)}, {a[2], n.in(3)}, {a[1], n.in(2)}, n.in(4));
}

/// X, W, R, B, sequence_lens, initial_h, initial_c, P, W_scale, W_zero_point, R_scale, R_zero_point. An LSTM whose products take X,
/// and the state of each step, in 8-bit codes; W and R are [direction, input, 4 * hidden], gates i o f c. Unrolled.
Status dynamic_quantize_lstm(NodeContext& n) {
  Compose c(n);
  for (const std::size_t i : {0U, 1U, 2U}) OCTAVO_CHECK(n.need_rank(i, 3, 3));
  for (std::size_t i = 8; i < 12; ++i) {
    if (!n.has(i)) return n.bad("input {} is missing", i);
  }
  const std::string direction = n.attr_text("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") return n.bad("direction \"{}\"", direction);
  const std::int64_t directions = direction == "bidirectional" ? 2 : 1;
  const Shape x = n.shape(0), w = n.shape(1), r = n.shape(2);
  const std::int64_t steps = x[0], batch = x[1], hidden = r[1];
  if (n.attr_int("hidden_size", hidden) != hidden || w != Shape{directions, x[2], 4 * hidden} ||
      r != Shape{directions, hidden, 4 * hidden})
    return n.bad("W is {} and R {}, needs [{},{},4 * hidden] and [{},hidden,4 * hidden]", ir::to_string(w), ir::to_string(r),
                 directions, x[2], directions);
  if (steps < 1 || hidden < 1) return n.bad("the data are {} and R {}: no step", ir::to_string(x), ir::to_string(r));
  if (steps > 1024) return n.unsupported("{} steps; at most 1024 are unrolled", steps);
  const std::vector<std::string> functions = n.attr_texts("activations");
  for (std::size_t i = 0; i < functions.size(); ++i) {
    if (functions[i] != (i % 3 == 0 ? "Sigmoid" : "Tanh")) return n.unsupported("activation \"{}\"", functions[i]);
  }
  if (n.has(4) || n.has(7) || n.attr_float("clip", 0.0F) != 0.0F || n.attr_int("input_forget", 0) != 0)
    return n.unsupported("sequence_lens, P, clip or input_forget; dequantize the weights and use LSTM");
  n.ignore({"activation_alpha", "activation_beta"});
  const auto part = [&](ValueId v, std::int64_t d, Shape to) { return c.reshape(c.slice(v, 0, d, d + 1), std::move(to)); };
  /// Weights of a direction: [rows, 4 * hidden]; scale and zero point are one number a direction, or one a column.
  const auto weights = [&](std::size_t i, std::size_t scale, std::int64_t d, std::int64_t rows) {
    const auto parameter = [&](std::size_t at) {
      const bool by_column = n.rank(at) == 2;
      if (n.shape(at) != (by_column ? Shape{directions, 4 * hidden} : Shape{directions}))
        c.fail(n.bad("input {} is {}", at, ir::to_string(n.shape(at))).value());
      return c.ok() ? part(n.in(at), d, by_column ? Shape{1, 4 * hidden} : Shape{}) : ir::kNone;
    };
    const ValueId codes = c.cast(part(n.in(i), d, {rows, 4 * hidden}), DType::f32), s = parameter(scale), z = parameter(scale + 1);
    return c.ok() ? c.mul(c.sub(codes, c.cast(z, DType::f32)), s) : ir::kNone;
  };
  const auto first = [&](std::size_t i, std::int64_t d) {
    if (!n.has(i)) return c.filled(DType::f32, {batch, hidden}, 0);
    if (n.shape(i) != Shape{directions, batch, hidden}) c.fail(n.bad("input {} is {}", i, ir::to_string(n.shape(i))).value());
    return c.ok() ? part(n.in(i), d, {batch, hidden}) : ir::kNone;
  };
  if (n.has(3) && n.shape(3) != Shape{directions, 8 * hidden}) return n.bad("B is {}", ir::to_string(n.shape(3)));
  const ValueId coded = coded_at_run_time(c, n.in(0));
  std::vector<ValueId> all, last_h, last_c;
  for (std::int64_t d = 0; d < directions && c.ok(); ++d) {
    ValueId gates = c.matmul(coded, weights(1, 8, d, x[2]));  // [t,b,4h]
    if (n.has(3)) {
      const ValueId b = part(n.in(3), d, {8 * hidden});
      gates = c.add(gates, c.add(c.slice(b, 0, 0, 4 * hidden), c.slice(b, 0, 4 * hidden, 8 * hidden)));
    }
    const ValueId back = weights(2, 10, d, hidden);
    ValueId h = first(5, d), state = first(6, d);
    std::vector<ValueId> rows(static_cast<std::size_t>(steps), ir::kNone);
    const bool reversed = d == 1 || direction == "reverse";
    for (std::int64_t step = 0; step < steps && c.ok(); ++step) {
      const std::int64_t t = reversed ? steps - 1 - step : step;
      const ValueId g = c.add(part(gates, t, {batch, 4 * hidden}), c.matmul(coded_at_run_time(c, h), back));
      const auto gate = [&](std::int64_t k, Op f) { return c.op(f, {c.slice(g, 1, k * hidden, (k + 1) * hidden)}); };
      const ValueId in = gate(0, Op::sigmoid), out = gate(1, Op::sigmoid), keep = gate(2, Op::sigmoid), fresh = gate(3, Op::tanh);
      state = c.add(c.mul(keep, state), c.mul(in, fresh));
      h = c.mul(out, c.op(Op::tanh, {state}));
      rows[static_cast<std::size_t>(t)] = c.reshape(h, {1, 1, batch, hidden});
    }
    if (!c.ok()) break;
    all.push_back(c.concat(rows, 0));
    last_h.push_back(c.reshape(h, {1, batch, hidden}));
    last_c.push_back(c.reshape(state, {1, batch, hidden}));
  }
  OCTAVO_CHECK(c.status());
  n.note(fmt::format("unrolled: {} steps", steps));
  n.set(1, c.concat(last_h, 0));
  n.set(2, c.concat(last_c, 0));
  return c.finish(c.concat(all, 1));
}

constexpr std::array kMicrosoftRows{
    OpRow{"FusedMatMul", kMicrosoft, 1, 0, 2, 2, fused_matmul},
    OpRow{"TransposeMatMul", kMicrosoft, 1, 0, 2, 2, fused_matmul},
    OpRow{"GemmFastGelu", kMicrosoft, 1, 0, 2, 3, gemm_fast_gelu},
    OpRow{"BiasAdd", kMicrosoft, 1, 0, 3, 3, bias_add},
    OpRow{"FastGelu", kMicrosoft, 1, 0, 1, 2, fast_gelu},
    OpRow{"BiasGelu", kMicrosoft, 1, 0, 2, 2, bias_gelu},
    OpRow{"SkipLayerNormalization", kMicrosoft, 1, 0, 3, 5, skip_layer_norm},
    OpRow{"SkipSimplifiedLayerNormalization", kMicrosoft, 1, 0, 3, 4, skip_layer_norm},
    OpRow{"MatMulIntegerToFloat", kMicrosoft, 1, 0, 4, 7, matmul_integer_to_float},
    OpRow{"DynamicQuantizeMatMul", kMicrosoft, 1, 0, 3, 5, dynamic_quantize_matmul},
    OpRow{"DynamicQuantizeLSTM", kMicrosoft, 1, 0, 3, 12, dynamic_quantize_lstm},
};

}  // namespace

Family microsoft_ops() {
  return kMicrosoftRows;
}

}  // namespace octavo::onnx
