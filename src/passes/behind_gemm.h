// What the rules ask that move pointwise operators to the product of matrices in front of them.
#pragma once

#include "ir/graph.h"

namespace octavo::passes {

/// Is each element of the operator's result computed from the same elements of its operands, without a rounding to codes (laws move those) and
/// without an axis that it names?
[[nodiscard]] bool moves_freely(ir::Op op);
/// Is the matrix a product of a gemm, or pointwise operators behind one?
[[nodiscard]] bool from_gemm(const ir::Graph& g, ir::ValueId matrix);
/// Has an operand of this shape one element for each of the columns that rows of a matrix have?
[[nodiscard]] bool one_a_column(const ir::Shape& operand, std::int64_t columns);

}  // namespace octavo::passes
