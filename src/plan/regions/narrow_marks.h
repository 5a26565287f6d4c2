// What plan/candidates/narrow.h wrote into a graph, read: marks of operators, and the casts of their operands.
#pragma once

#include "ir/graph.h"

namespace octavo::plan {

/// The attribute of an operator that says its ir::Arithmetic, and that of the casts.
inline constexpr const char *kArithmeticMark = "compute", *kCastMark = "held";
/// Operators that can have a mark.
[[nodiscard]] bool can_be_marked(ir::Op op);

/// Is it a weighted operator, or a product, that is to compute in bfloat16?
[[nodiscard]] bool is_narrow(const ir::Node& node);
/// Has the operator, by its attributes, the permission of `permit_tf32`?
[[nodiscard]] bool may_tf32(const ir::Attrs& attrs);
/// One of the casts that `narrow` made; true for both directions.
[[nodiscard]] bool is_narrow_cast(const ir::Node& node);
/// The cast from a bfloat16 tensor in memory to the floats that its readers see: it costs nothing and is computed nowhere.
[[nodiscard]] bool is_held(const ir::Node& node);
/// What lies in memory for `v`: the bfloat16 tensor under a held cast, `v` itself otherwise.
[[nodiscard]] ir::ValueId held(const ir::Graph& g, ir::ValueId v);

}  // namespace octavo::plan
