// Gemm, MatMul, com.microsoft FusedGemm.
#include <array>

#include "onnx/import/coded.h"
#include "onnx/import/lower.h"
#include "onnx/import/registry.h"

namespace octavo::onnx {
namespace {

/// v * factor: folded when v is constant. One rounding an element.
Result<ValueId> scaled(NodeContext& n, ValueId v, float factor) {
  if (factor == 1.0F) return v;
  return n.emit(Op::mul, {v, n.scalar(factor)});
}

Result<ValueId> transposed(NodeContext& n, ValueId v, bool yes) {
  if (!yes) return v;
  return n.emit(Op::transpose, {v}, {{"perm", Ints{1, 0}}});
}

Status gemm(NodeContext& n) {
  return n.result(lower_gemm(n));
}

/// com.microsoft.FusedGemm: activation(Gemm).
Status fused_gemm(NodeContext& n) {
  std::vector<float> params;
  for (const char* key : {"activation_alpha", "activation_beta"}) {
    if (n.has_attr(key)) params.push_back(n.attr_float(key, 0.0F));
  }
  n.ignore({"activation_gamma"});
  OCTAVO_TRY(const ValueId y, lower_gemm(n));
  return n.result(lower_fused_activation(n, y, n.attr_text("activation", ""), params));
}

Status matmul(NodeContext& n) {
  return n.result(lower_matmul(n, n.in(0), n.in(1)));
}

constexpr std::array kGemmRows{
    OpRow{"Gemm", "", 1, 0, 2, 3, gemm},
    OpRow{"FusedGemm", kMicrosoft, 1, 0, 2, 3, fused_gemm},
    OpRow{"MatMul", "", 1, 0, 2, 2, matmul},
};

}  // namespace

Result<ValueId> lower_matmul(NodeContext& n, ValueId a, ValueId b, Attrs more) {
  const Shape rows = n.shape_of(a), weights = n.shape_of(b);
  const bool fits = rows.size() >= 2 && weights.size() == 2 && rows.back() == weights[0];  // else the product's own error
  if (!fits || !n.is_weight(b)) return n.emit(Op::matmul, {a, b});
  if (rows.size() == 2) return n.emit(Op::gemm, {a, b}, std::move(more));
  const std::int64_t count = ir::count(Shape(rows.begin(), rows.end() - 1));
  OCTAVO_TRY(const ValueId flat, n.reshape(a, {count, rows.back()}));
  OCTAVO_TRY(const ValueId y, n.emit(Op::gemm, {flat, b}, std::move(more)));
  Shape result = rows;
  result.back() = weights[1];
  return n.reshape(y, std::move(result));
}

/// y = alpha * A' B' + beta * C.
Result<ValueId> lower_gemm(NodeContext& n) {
  OCTAVO_CHECK(n.need_rank(0, 2, 2));
  OCTAVO_CHECK(n.need_rank(1, 2, 2));
  if (n.opset() < 7) n.ignore({"broadcast"});  // C repeats as in later opsets
  const float alpha = n.attr_float("alpha", 1.0F);
  const float beta = n.attr_float("beta", 1.0F);
  OCTAVO_TRY(const ValueId a, transposed(n, n.in(0), n.attr_int("transA", 0) != 0));
  OCTAVO_TRY(ValueId b, transposed(n, n.in(1), n.attr_int("transB", 0) != 0));
  ValueId c = n.in(2);
  if (c != ir::kNone) {
    OCTAVO_TRY(c, scaled(n, c, beta));
  }
  if (alpha != 1.0F && is_plain_constant(n.graph(), b)) {
    OCTAVO_TRY(b, scaled(n, b, alpha));
  } else if (alpha != 1.0F) {
    OCTAVO_TRY(ValueId y, n.emit(Op::gemm, {a, b}));
    OCTAVO_TRY(y, scaled(n, y, alpha));
    if (c == ir::kNone) return y;
    return n.emit(Op::add, {y, c});
  }
  if (c == ir::kNone) return n.emit(Op::gemm, {a, b});
  // A bias of one entry an output channel is the anchor's own; any other is added afterwards.
  const std::int64_t channels = n.shape_of(b)[1];
  const Shape bias = n.shape_of(c);
  const std::int64_t entries = ir::count(bias);
  const bool row = !bias.empty() && bias.back() == channels && entries == channels;
  if (row) {
    OCTAVO_TRY(c, n.reshape(c, {channels}));
  } else if (entries == 1 && bias.size() <= 2) {
    OCTAVO_TRY(c, n.reshape(c, {1}));
    OCTAVO_TRY(c, n.emit(Op::expand, {c}, {{"shape", Ints{channels}}}));
  } else {
    OCTAVO_TRY(const ValueId y, n.emit(Op::gemm, {a, b}));
    const Shape shape = n.shape_of(y);
    OCTAVO_TRY(const ValueId sum, n.emit(Op::add, {y, c}));
    if (n.shape_of(sum) != shape)
      return n.bad("C is {}, which does not broadcast to the result {}", ir::to_string(bias), ir::to_string(shape));
    return sum;
  }
  return n.emit(Op::gemm, {a, b, c});
}

Family gemm_ops() {
  return kGemmRows;
}

}  // namespace octavo::onnx
