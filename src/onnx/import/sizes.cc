// What is known of values: how many elements their dimensions have.
#include <algorithm>
#include <set>

#include "onnx/import/sizes_detail.h"

namespace octavo::onnx {

using namespace sizes;  // NOLINT: the details of this file

const Sizes::Extents& Sizes::extents(ValueId v) const {
  static const Extents kNothing;
  const auto at = extents_.find(v);
  return at == extents_.end() ? kNothing : at->second;
}

void Sizes::set(ValueId v, Extents extents) {
  if (v == ir::kNone) return;
  if (extents.empty()) {
    extents_.erase(v);
  } else {
    extents_[v] = std::move(extents);
  }
}

std::optional<ValueId> Sizes::open_operand(const std::vector<ValueId>& values) const {
  const auto at = std::find_if(values.begin(), values.end(), [&](ValueId v) { return open(v); });
  return at == values.end() ? std::nullopt : std::optional(*at);
}

std::string Sizes::source(const ir::Graph& g, ValueId count) const {
  const auto& origin = g.producer(count).origin;
  return origin.empty() ? g.producer(count).name : *origin.begin();
}

bool sized_operands(NodeContext& n, std::initializer_list<std::size_t> shape_operands) {
  Sizes& s = n.importer().sizes();
  if (s.none()) return false;
  for (std::size_t i = 0; i < n.operands(); ++i) {
    if (n.has(i) && s.open(n.in(i))) return true;
  }
  for (const std::size_t i : shape_operands) {
    if (n.has(i) && n.constant(i) == nullptr && s.elements(n, n.in(i))) return true;
  }
  return false;
}

bool sized_by_data(NodeContext& n, std::initializer_list<std::size_t> shape_operands) {
  if (sized_operands(n, shape_operands)) return true;
  Sizes& s = n.importer().sizes();
  const bool data = std::any_of(shape_operands.begin(), shape_operands.end(), [&](std::size_t i) {
    return n.has(i) && !n.graph().is_constant(n.in(i)) && !n.graph().producer(n.in(i)).quantizer;
  });
  return data && (s.given(n) || !n.importer().decided_late(n));
}

Status admit_sizes(NodeContext& n) {
  Sizes& s = n.importer().sizes();
  if (s.none()) return {};
  // Operators whose lowering treats extents only as the IR operators do that it emits.
  // clang-format off
  static const std::set<std::string_view> kFollow{
      "Abs", "Acos", "Acosh", "Add", "And", "ArgMax", "ArgMin", "Asin", "Asinh", "Atan", "Atanh", "AveragePool",
      "BatchNormalization", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil",
      "Celu", "Clip", "Compress", "Concat", "ConstantOfShape", "Conv", "ConvTranspose", "Cos", "Cosh", "CumSum",
      "DepthToSpace", "DequantizeLinear", "Det", "Div", "Dropout", "DynamicQuantizeLinear", "Elu", "Equal", "Erf", "Exp",
      "Expand", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Gelu", "Gemm", "GlobalAveragePool",
      "GlobalMaxPool", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "If", "InstanceNormalization",
      "IsInf", "IsNaN", "LRN", "LayerNormalization", "LeakyRelu", "Less", "LessOrEqual", "Log", "LogSoftmax", "Loop", "MatMul",
      "Max", "MaxPool", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "NonMaxSuppression", "NonZero", "Not", "Or", "PRelu",
      "Pad", "Pow", "QLinearConv", "QLinearMatMul", "QuantizeLinear", "Range", "Reciprocal", "ReduceL1", "ReduceL2",
      "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
      "Relu", "Reshape", "Resize", "RoiAlign", "Round", "Scatter", "ScatterElements", "ScatterND", "Selu",
      "SequenceAt", "SequenceConstruct", "Shape", "Sigmoid", "Sign", "Sin", "Sinh", "Size", "Slice", "Softmax", "Softplus",
      "Softsign", "SpaceToDepth", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Tile",
      "TopK", "Transpose", "Unique", "Unsqueeze", "Upsample", "Where", "Xor"};
  // clang-format on
  for (std::size_t i = 0; i < n.operands(); ++i) {
    if (!n.has(i) || !s.open(n.in(i))) continue;
    if (n.proto().domain().empty() && kFollow.contains(n.proto().op_type())) return {};
    return n.unsupported(
        "its operand \"{}\" has a size that data decide ({}), which this operator does not support; do this step on the results of "
        "a run",
        n.input_name(i), s.source(n.graph(), s.extents(n.in(i)).begin()->second));
  }
  return {};
}

}  // namespace octavo::onnx
