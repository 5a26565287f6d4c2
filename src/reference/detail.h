// Shared by the evaluator's files: the arguments of one node, and tensors as plain vectors.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/facts.h"
#include "ir/graph.h"
#include "ir/grid.h"

namespace octavo::reference {

using ir::DType;
using ir::Op;
using ir::Shape;
using ir::Tensor;
using ir::TensorType;
using Tensors = std::vector<Tensor>;
using Ints = std::vector<std::int64_t>;

inline std::size_t idx(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// One node with its evaluated inputs.
struct Args {
  const ir::Graph& g;
  const ir::Grids& grids;
  ir::NodeId id;
  const ir::Node& n;
  const ir::Facts& facts;
  const Tensors& in;

  /// The facts of an operator of this kind.
  template <class F>
  [[nodiscard]] const F& as() const {
    return std::get<F>(facts);
  }
  [[nodiscard]] const TensorType& out(std::size_t i = 0) const { return g.type(n.outputs[i]); }
  [[nodiscard]] const Shape& shape(std::size_t i) const { return in[i].shape(); }
  [[nodiscard]] bool has(std::size_t i) const { return i < in.size() && !in[i].empty(); }
  /// The 8-bit quantizer that input i is known to lie on, or nullptr.
  [[nodiscard]] const ir::Quantizer* grid(std::size_t i) const { return i < n.inputs.size() ? grids.get(n.inputs[i]) : nullptr; }
  template <class... T>
  [[nodiscard]] tl::unexpected<Error> error(ErrorKind kind, fmt::format_string<T...> text, T&&... args) const {
    return fail(
        kind, fmt::format("evaluating {} node \"{}\": ", ir::name_of(n.op), n.name) + fmt::format(text, std::forward<T>(args)...));
  }
};

/// Any numeric tensor as floats (f16, bf16 exactly; f64 and wide integers rounded to nearest).
[[nodiscard]] std::vector<float> floats(const Tensor& t);
/// Rounds each float once to the tensor's type (any float type).
[[nodiscard]] Tensor from_floats(const std::vector<float>& values, const TensorType& type);
/// Integer or bool tensors, sign- or zero-extended (u64 keeps its bits).
[[nodiscard]] std::vector<std::int64_t> integers(const Tensor& t);
/// Keeps the low bits of each value; bool keeps "not zero".
[[nodiscard]] Tensor from_integers(const std::vector<std::int64_t>& values, const TensorType& type);
/// A coded tensor as the floats that the codes stand for, in the given float type.
[[nodiscard]] Tensor decode(const Tensor& codes, const ir::Quantizer& q, DType type);
/// code - zero point of every element of a tensor on a per-tensor 8-bit grid; an error if an element is not on the grid.
[[nodiscard]] Result<std::vector<std::int16_t>> centred_codes(const Args& a, const Tensor& t, const ir::Quantizer& q);

/// Element offsets of an operand under numpy broadcasting: one stride a dimension of `out`, 0 where it repeats.
[[nodiscard]] Ints broadcast_strides(const Shape& operand, const Shape& out);
/// Calls f(flat output index, operand offsets...) in row-major order; `strides` as from broadcast_strides.
template <class F>
void for_each_element(const Shape& out, const std::vector<Ints>& strides, F&& f) {
  const std::int64_t total = ir::count(out);
  Ints index(out.size(), 0), at(strides.size(), 0);
  for (std::int64_t flat = 0; flat < total; ++flat) {
    f(flat, at);
    for (std::size_t d = out.size(); d-- > 0;) {
      ++index[d];
      for (std::size_t k = 0; k < at.size(); ++k) at[k] += strides[k][d];
      if (index[d] < out[d]) break;
      for (std::size_t k = 0; k < at.size(); ++k) at[k] -= strides[k][d] * out[d];
      index[d] = 0;
    }
  }
}

// One function a family; each sees only the operators that evaluate.cc sends it.
Result<Tensors> eval_weighted(const Args& a);  // conv, conv_transpose, gemm
Result<Tensors> eval_matmul(const Args& a);
Result<Tensors> eval_pool(const Args& a);          // max_pool, avg_pool
Result<Tensors> eval_reduce(const Args& a);        // reduce_*, arg_max
Result<Tensors> eval_softmax(const Args& a);       // softmax, log_softmax
Result<Tensors> eval_norm(const Args& a);          // instance_norm, layer_norm, lrn
Result<Tensors> eval_resize(const Args& a);        // resize_linear, resize_cubic
Result<Tensors> eval_quantization(const Args& a);  // view, quantize, dequantize, their run-time forms, dynamic_quantize
Result<Tensors> eval_unary(const Args& a);
Result<Tensors> eval_cast(const Args& a);
Result<Tensors> eval_binary(const Args& a);  // arithmetic, comparisons, logic
Result<Tensors> eval_affine(const Args& a);
Result<Tensors> eval_move(const Args& a);    // every moving op, and where
Result<Tensors> eval_gather(const Args& a);  // gather, gather_elements, gather_nd
Result<Tensors> eval_index(const Args& a);   // scatter, top_k, cumulate, bitwise, bit_cast, math, det
Result<Tensors> eval_sample(const Args& a);  // grid_sample, roi_align, deform_conv, non_max_suppression
Result<Tensors> eval_recurrent(const Args& a);

}  // namespace octavo::reference
