// Which inputs of the model decide what a node must know before it can be lowered.
#include "onnx/import/late_values.h"

#include <algorithm>
#include <array>

#include "onnx/import/importer.h"

namespace octavo::onnx {
namespace {

/// What may be bound by its value: a number, or a short list of numbers, as shapes, axes, counts and scales are.
constexpr std::int64_t kMostOfInput = 64;
/// What may lie between such an input and the node; larger values are data.
constexpr std::int64_t kMostBetween = 4096;

/// Operands that decide the shape of a result, or how often something is done.
struct Decides {
  std::string_view type;
  std::vector<std::size_t> operands;
};
const std::array<Decides, 34>& deciding() {
  static const std::array<Decides, 34> rows{{
      {"Reshape", {1}},
      {"Expand", {1}},
      {"Tile", {1}},
      {"ConstantOfShape", {0}},
      {"Slice", {1, 2, 3, 4}},
      {"DynamicSlice", {1, 2, 3, 4}},
      {"Pad", {1, 2, 3}},
      {"Resize", {1, 2, 3}},
      {"Upsample", {1}},
      {"Range", {0, 1, 2}},
      {"OneHot", {1}},
      {"TopK", {1}},
      {"Squeeze", {1}},
      {"Unsqueeze", {1}},
      {"Split", {1}},
      {"CumSum", {1}},
      {"CumProd", {1}},
      {"Trilu", {1}},
      {"CenterCropPad", {1}},
      {"NonMaxSuppression", {2}},
      {"DFT", {1, 2}},
      {"STFT", {1, 3}},
      {"Col2Im", {1, 2}},
      {"AffineGrid", {1}},
      {"MaxUnpool", {2}},
      {"Loop", {0, 1}},
      {"If", {0}},
      {"BlackmanWindow", {0}},
      {"HannWindow", {0}},
      {"HammingWindow", {0}},
      {"MelWeightMatrix", {0, 1, 2, 3, 4}},
      {"Dropout", {2}},
      {"Clip", {1, 2}},
      {"GroupQueryAttention", {6}},
  }};
  return rows;
}

std::vector<std::size_t> deciding_operands(const NodeContext& node) {
  const std::string& type = node.proto().op_type();
  if (type.starts_with("Reduce")) return {1};
  for (const Decides& row : deciding()) {
    if (row.type == type) return row.operands;
  }
  // Quantization parameters that the operator's own lowering must know, behind an operand of its type.
  if (type == "QuantizeLinear" || type == "DequantizeLinear") return {1, 2};
  if (type == "QLinearConv" || type == "QLinearMatMul") return {1, 2, 4, 5, 6, 7};
  if (type == "ConvInteger" || type == "MatMulInteger") return {2, 3};
  return {};
}

}  // namespace

Result<ImportOptions> Importer::with_values() const {
  ImportOptions bound = options_;
  if (late_ == nullptr) return bound;
  for (const auto& [name, value] : late_->given) {
    const auto info =
        std::find_if(out_.inputs.begin(), out_.inputs.end(), [n = &name](const InputInfo& i) { return i.name == *n; });
    if (info == out_.inputs.end())
      return fail(ErrorKind::usage, fmt::format("a value is given for input \"{}\", but the model has no such input", name));
    const auto shape = bound.shapes.try_emplace(name, value.shape()).first;
    if (value.dtype() != info->dtype || shape->second != value.shape()) {
      return fail(ErrorKind::usage, fmt::format("the value given for input \"{}\" is {}, the model takes {}{}", name,
                                                ir::to_string(value.type()), ir::name_of(info->dtype), info->shape_text()));
    }
  }
  return bound;
}

std::set<std::string> Importer::late_inputs(const NodeContext& node, std::string& data) const {
  const ir::Graph& g = out_.graph;
  std::set<std::string> found;
  std::unordered_set<ValueId> seen;
  std::vector<ValueId> open;
  for (const std::size_t i : deciding_operands(node)) {
    if (node.has(i)) open.push_back(node.in(i));
  }
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    if (v == ir::kNone || !seen.insert(v).second || g.is_constant(v)) continue;
    const ir::Node& n = g.producer(v);
    const TensorType& t = g.type(v);
    const bool input = n.op == Op::input;
    const bool fits = input ? t.shape.size() <= 1 && ir::count(t.shape) <= kMostOfInput : ir::count(t.shape) <= kMostBetween;
    if (!fits) {
      data = fmt::format("{}\"{}\" {}", input ? "the input " : "", g.value(v).name, ir::to_string(t));
      return {};
    }
    if (input) found.insert(g.value(v).name);
    open.insert(open.end(), n.inputs.begin(), n.inputs.end());
  }
  return found;
}

void Importer::record_late(const NodeContext& node, std::string reason) {
  std::string data;
  const std::set<std::string> late = late_inputs(node, data);
  if (!late.empty()) {
    std::string names;
    for (const std::string& name : late) names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", name);
    reason += fmt::format(
        "; it follows from the value of input {}, which the first run of octavo.build's engine and octavo run bind", names);
  } else if (!data.empty()) {
    reason += fmt::format(
        "; it follows from {}, which is data: only inputs of rank 0 or 1 and at most 64 elements are bound by their values", data);
  }
  record_problem(node, std::move(reason));
  // An operator with bodies may be refused for a node in one of them, which is listed by itself.
  const std::string& type = node.proto().op_type();
  const bool has_bodies = type == "If" || type == "Loop" || type == "Scan";
  problems_.back().final = late.empty() && depth_ == 0 && !has_bodies;
  needed_.insert(late.begin(), late.end());
}

}  // namespace octavo::onnx
