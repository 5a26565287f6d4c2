// Quantizers of weights that are quantized here: symmetric int8.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "ir/quantizer.h"
#include "ir/tensor.h"

namespace octavo::quant {

/// One scale for each index of `axis` (-1: one for all): fl(max|w| / 127), as TensorRT and the exporters do it; at least fl(1e-9 /
/// 127). Where that scale, or one within 2 ulp of it, gives back every weight exactly (fl(q * s) == w for codes -127..127), the
/// weights were dequantized codes, and the nearest such scale is taken: quantizing what was quantized before changes nothing. `w`
/// is f32.
[[nodiscard]] std::vector<float> weight_scales(const ir::Tensor& w, int axis);

/// The axis of a weighted operator's output channels in its constant weights; -1, one scale for all, where groups share their
/// entries (a grouped conv_transpose). Row-major gemm weights are [K, N].
[[nodiscard]] int weight_axis(ir::Op op, std::int64_t group);
/// s8 for the constant f32 weights of a conv, conv_transpose or gemm: weight_scales along weight_axis, zero points 0.
[[nodiscard]] ir::Quantizer weight_quantizer(const ir::Graph& g, const ir::Node& n);

}  // namespace octavo::quant
