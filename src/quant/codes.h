// Helpers of the laws: constants and codes, and replacing values without losing ranges or provenance.
#pragma once

#include "ir/graph.h"
#include "ir/grid.h"

namespace octavo::quant {

/// A coded constant in its canonical spelling: 8-bit codes as s8, equal per-axis entries as per tensor.
ir::ValueId add_coded(ir::Graph& g, ir::Tensor codes, ir::Quantizer q, const std::string& name);
/// Elements of a constant as floats, coded or not; f32.
[[nodiscard]] ir::Tensor values_of(const ir::Node& constant);
/// quantize_q of every element; `values` is f32.
[[nodiscard]] ir::Tensor encode(const ir::Tensor& values, const ir::Quantizer& q);
/// The same codes in another 8-bit type (u8 <-> s8, shifted by 128).
[[nodiscard]] ir::Tensor shifted(const ir::Tensor& codes, ir::DType to);

/// replace_uses, and: of two ranges (implicit quantization) the wider is kept; where `to` is an input or a
/// constant, which have no provenance, the origin of `from` goes to its readers, so that every ONNX node stays accounted for.
void substitute(ir::Graph& g, ir::ValueId from, ir::ValueId to, bool join_origin = true);

/// True if q(v) == v is known: v's grid is fixed by q, or v moves elements of operands for which that holds.
[[nodiscard]] bool fixed_by(const ir::Graph& g, const ir::Grids& grids, ir::ValueId v, const ir::Quantizer& q);
/// True if quantize_q(dequantize_q(c)) == c for every code c, by enumeration (8 and 16 bits). Stronger than ir::fixes(q, q): two
/// codes may have one value, in bf16 or where the product overflows.
[[nodiscard]] bool gives_back(const ir::Quantizer& q);
/// The same of one code, per tensor.
[[nodiscard]] bool gives_back(const ir::Quantizer& q, double code);
/// True if values of this type hold everything that `q` dequantizes to.
[[nodiscard]] bool holds(ir::DType type, const ir::Quantizer& q);

}  // namespace octavo::quant
