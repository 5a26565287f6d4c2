// bfloat16 and float16: writes the operands of weighted operators, and of products of two matrices, that compute in one of them into the graph.
//
// A node marked by `mark_narrow` (permit does) gets weights rounded to the type, and its data (a product: both matrices) through the pair cast
// to bf16 (f16), cast to f32. The value between the two is what lies in memory, half as large; the pair's second cast is no operation (`is_held`):
// the kernel reads the 16-bit tensor as it is. The first belongs to the region that makes the value, through concatenations, slices
// and other moves. So the reference evaluator evaluates such a graph as any other: operands rounded exactly, sums in float.
//
// With `Storage`, the other float tensors that leave regions go through such pairs too, where all of their readers take the 16-bit tensor.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/reason.h"
#include "ir/graph.h"
#include "plan/regions/narrow_marks.h"

namespace octavo::plan {

/// Asks for `type` (bf16, f16) of a conv, conv_transpose or gemm with constant f32 weights, or of a matmul. Float rules may still fold into its
/// weights. `emulated`: its operands are rounded by casts that are computed, and kept in f32: the values of the type, on any
/// processor, at no less time than float32.
void mark_narrow(ir::Node& node, ir::DType type = ir::DType::bf16, bool emulated = false);
/// Lets convolutions and gemms with constant f32 weights that are not to be bfloat16 round their operands to tf32 (10 bits behind the point)
/// where a device multiplies such faster: a permission, the graph's values stay float32. Call behind `narrow`.
void permit_tf32(ir::Graph& g);

/// The largest value of float16.
inline constexpr double kFloat16End = 65504;
/// Magnitudes from here on stay wider than float16: twice as much on other data would be infinite.
inline constexpr double kFloat16Limit = 32768;
/// The largest magnitude that the value's range says; 0: it has none.
[[nodiscard]] double largest_of_range(const ir::Graph& g, ir::ValueId v);

/// Which types the model itself gives to the tensors of its ONNX nodes, by the node's name: f32, f16, bf16. Empty: none is narrower than f32.
using ModelTypes = std::map<std::string, ir::DType>;
/// The type of all ONNX nodes that the node stands for, where they agree and it is f16 or bf16.
[[nodiscard]] std::optional<ir::DType> narrow_type_of_model(const ir::Node& node, const ModelTypes& types);

/// Which float tensors between regions may lie in memory in a type of 16 bits.
struct Storage {
  std::optional<ir::DType> all;         ///< every tensor
  ModelTypes model;                     ///< those that have the type in the model
  std::set<std::string> kept;           ///< ONNX nodes whose results stay float32
  std::map<std::string, double> large;  ///< tensors without a range that `all` leaves float32 if it is f16 (PermitChoices::large)
  [[nodiscard]] bool any() const { return all || !model.empty(); }
};

/// Carries out the marks, then `storage`; call last, when no rule will touch weights any more. Marks that cannot be kept (data or weights are not
/// f32, weights not a constant, matrices not f32) are removed. Element-wise operators of other regions read the 16-bit tensor too if no operator
/// needs the floats. A graph without marks does not change without `storage`. Returns the ONNX nodes whose weights exceed float16, with the
/// reason: they lost their mark.
std::map<std::string, Reason> narrow(ir::Graph& g, const Storage& storage = {});

}  // namespace octavo::plan
