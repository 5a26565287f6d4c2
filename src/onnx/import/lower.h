// Lowerings that several operators share (an ONNX operator, its QLinear form, an older spelling of it).
#pragma once

#include "onnx/import/node_context.h"

namespace octavo::onnx {

/// AveragePool of x with the node's window attributes.
[[nodiscard]] Result<ValueId> lower_average_pool(NodeContext& n, ValueId x);
/// Average over all spatial dimensions of x, kept as 1.
[[nodiscard]] Result<ValueId> lower_global_average(NodeContext& n, ValueId x);
/// softmax or log_softmax. `flattens`: opset < 13, one distribution over all dimensions from `axis` on.
[[nodiscard]] Result<ValueId> lower_softmax(NodeContext& n, Op op, ValueId x, std::int64_t axis, bool flattens);
/// The conv part of Conv, QLinearConv and ConvInteger: attributes from the node, operands given. `more`: attributes of the IR operator.
[[nodiscard]] Result<ValueId> lower_conv(NodeContext& n, ValueId x, ValueId w, ValueId bias, ir::Attrs more = {});
/// a times b as MatMul has it. By a weight of rank 2 it is a gemm over all rows of a, so that it can be integer whatever a's rank, with the
/// attributes `more`; anything else is a batched product.
[[nodiscard]] Result<ValueId> lower_matmul(NodeContext& n, ValueId a, ValueId b, ir::Attrs more = {});

/// The int32 sums of (data - its zero point) * (weights - their zero points), as MatMulInteger has them; a zero point may be kNone. Data have rank 1 at least.
[[nodiscard]] Result<ValueId> lower_integer_matmul(NodeContext& n, ValueId data, ValueId weights, ValueId data_zero,
                                                   ValueId weights_zero);

/// Gemm with the node's attributes, of operands 0, 1 and 2.
[[nodiscard]] Result<ValueId> lower_gemm(NodeContext& n);
/// What ONNX Runtime fuses behind a convolution or Gemm, by the operator's name ("" for none); `params` are its attributes in order.
[[nodiscard]] Result<ValueId> lower_fused_activation(NodeContext& n, ValueId y, const std::string& activation,
                                                     const std::vector<float>& params);

}  // namespace octavo::onnx
