// bfloat16: writes the operands of weighted operators, and of products of two matrices, that compute in bfloat16 into the graph.
//
// A node marked by `mark_narrow` (permit does) gets weights rounded to bfloat16, and its data (a product: both matrices) through the pair cast
// to bf16, cast to f32. The value between the two is what lies in memory, half as large; the pair's second cast is no operation (`is_held`): the
// kernel reads the bfloat16 tensor as it is. The first belongs to the region that makes the value, through concatenations, slices
// and other moves. So the reference evaluates such a graph as any other: operands rounded exactly, sums in float.
#pragma once

#include "ir/graph.h"
#include "plan/regions/narrow_marks.h"

namespace octavo::plan {

/// Asks for bfloat16 of a conv, conv_transpose or gemm with constant f32 weights, or of a matmul. Float rules may still fold into its weights.
/// `emulated`: its operands are rounded as for bfloat16, by casts that are computed, and kept in f32: the values of bfloat16, on any
/// processor, at no less time than float32.
void mark_narrow(ir::Node& node, bool emulated = false);
/// Lets convolutions and gemms with constant f32 weights that are not to be bfloat16 round their operands to tf32 (10 bits behind the point)
/// where a device multiplies such faster: a permission, the graph's values stay float32. Call behind `narrow`.
void permit_tf32(ir::Graph& g);

/// Carries out the marks; call last, when no rule will touch weights any more. Marks that cannot be kept (data or weights are not
/// f32, weights not a constant, matrices not f32) are removed. Element-wise operators of other regions read the bfloat16 tensor too if no operator
/// needs the floats. A graph without marks does not change.
void narrow(ir::Graph& g);

}  // namespace octavo::plan
