// What plan/candidates/narrow.h wrote into a graph, read: marks of operators, and the casts of their operands.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace octavo::plan {

/// The attribute of an operator that says its ir::Arithmetic, and that of the casts.
inline constexpr const char *kArithmeticMark = "compute", *kCastMark = "held";
/// Operators that can have a mark.
[[nodiscard]] bool can_be_marked(ir::Op op);

/// The 16-bit type, bf16 or f16, that a weighted operator or a product is to compute in; nothing for others.
[[nodiscard]] std::optional<ir::DType> narrow_type(const ir::Node& node);
[[nodiscard]] inline bool is_narrow(const ir::Node& node) {
  return narrow_type(node).has_value();
}
/// Has the operator, by its attributes, the permission of `permit_tf32`?
[[nodiscard]] bool may_tf32(const ir::Attrs& attrs);
/// One of the casts that `narrow` made; true for both directions.
[[nodiscard]] bool is_narrow_cast(const ir::Node& node);
/// The cast from a 16-bit tensor in memory to the floats that its readers see: it costs nothing and is computed nowhere.
[[nodiscard]] bool is_held(const ir::Node& node);
/// What lies in memory for `v`: the 16-bit tensor under a held cast, `v` itself otherwise.
[[nodiscard]] ir::ValueId held(const ir::Graph& g, ir::ValueId v);

}  // namespace octavo::plan
