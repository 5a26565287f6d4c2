// Coded constants: DequantizeLinear of constant codes is one `constant` with a quantizer, and stays one through Transpose and
// Reshape, so that the imported graph already shows its integer anchors.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace octavo::onnx {

/// A constant without a quantizer.
[[nodiscard]] bool is_plain_constant(const ir::Graph& g, ir::ValueId v);
/// A constant with one.
[[nodiscard]] bool is_coded_constant(const ir::Graph& g, ir::ValueId v);
/// transpose or reshape of a coded constant as a coded constant: codes moved, axis remapped. nullopt: another operator, or a
/// reshape that merges or splits the quantized dimension.
[[nodiscard]] std::optional<ir::ValueId> move_coded(ir::Graph& g, const ir::Node& n, const ir::TensorType& result);

}  // namespace octavo::onnx
