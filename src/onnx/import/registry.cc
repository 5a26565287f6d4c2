#include "onnx/import/registry.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "onnx/import/import.h"

namespace octavo::onnx {
namespace {

using Table = std::unordered_multimap<std::string_view, const OpRow*>;

const Table& table() {
  static const Table rows = [] {
    Table t;
    for (const Family family :
         {conv_ops(),      gemm_ops(),   pool_ops(),      activation_ops(),  elementwise_ops(), move_ops(),    slice_ops(),
          reduce_ops(),    resize_ops(), norm_ops(),      shape_ops(),       control_ops(),     quant_ops(),   qlinear_ops(),
          integer_ops(),   math_ops(),   index_ops(),     sample_ops(),      recurrent_ops(),   signal_ops(),  einsum_ops(),
          attention_ops(), loss_ops(),   microsoft_ops(), transformer_ops(), sequence_ops(),    language_ops()}) {
      for (const OpRow& row : family) t.emplace(row.type, &row);
    }
    return t;
  }();
  return rows;
}

struct Hint {
  std::string_view type, text;
};
constexpr std::array kHints{
    Hint{"ImageScaler", "an experimental operator that ONNX removed in 1.5; write it as Mul and Add and export again"},
    Hint{"Affine", "an experimental operator that ONNX removed in 1.5; write it as Mul and Add and export again"},
    Hint{"Scale", "an experimental operator that ONNX removed; write it as Mul and export again"},
    Hint{"Crop", "an experimental operator that ONNX removed in 1.5; write it as Slice and export again"},
    Hint{"DynamicSlice", "an experimental operator that ONNX removed in 1.5; write it as Slice and export again"},
    Hint{"ScaledTanh", "an experimental operator that ONNX removed; write it as Mul, Tanh, Mul and export again"},
    Hint{"ParametricSoftplus", "an experimental operator that ONNX removed; write it as Mul, Softplus, Mul and export again"},
    Hint{"ATen", "a PyTorch fallback without ONNX meaning; export again with a newer opset_version"},
};

}  // namespace

const OpRow* find_row(std::string_view domain, std::string_view type, std::int64_t opset) {
  if (domain == "ai.onnx") domain = "";
  const auto [first, last] = table().equal_range(type);
  for (auto it = first; it != last; ++it) {
    const OpRow& row = *it->second;
    if (row.domain != domain) continue;
    if (!domain.empty() || (opset >= row.since && (row.until == 0 || opset <= row.until))) return &row;
  }
  return nullptr;
}

std::vector<const OpRow*> all_rows() {
  std::vector<const OpRow*> out;
  for (const auto& [type, row] : table()) out.push_back(row);
  return out;
}

std::string advice(std::string_view domain, std::string_view type) {
  if (domain == "ai.onnx") domain = "";
  const auto [first, last] = table().equal_range(type);
  for (auto it = first; it != last; ++it) {
    const OpRow& row = *it->second;
    if (row.domain != domain) continue;
    return row.until == 0 ? fmt::format("supported from opset {}; convert the model with onnx.version_converter", row.since)
                          : fmt::format("supported in opset {} to {} only, where ONNX defines it; the file's opset is wrong for it",
                                        row.since, row.until);
  }
  if (first != last) return fmt::format("supported in domain \"{}\" only", first->second->domain);
  if (domain.empty()) {
    for (const Hint& hint : kHints) {
      if (hint.type == type) return std::string(hint.text);
    }
    return "not supported yet; cut the model around it, or express it with supported operators";
  }
  return fmt::format("an operator of the domain \"{}\"; export with standard ONNX operators", domain);
}

std::vector<std::string> supported_operators() {
  std::vector<std::string> out;
  for (const auto& [type, row] : table())
    out.push_back(row->domain.empty() ? std::string(type) : fmt::format("{}.{}", row->domain, type));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace octavo::onnx
