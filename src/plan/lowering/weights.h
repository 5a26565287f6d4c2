// Constant weights in the form in which a region has them.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"
#include "plan/memo.h"

namespace octavo::plan {

/// The constant as the weights of a convolution: s8 codes, floats (of coded constants their values), or floats in a narrow type; those of a gemm
/// [K,N] as [N,K,1,1]. Floats of a gemm that are the values of codes keep these (ir::Tensor::codes).
[[nodiscard]] ir::Tensor lowered_weights(const ir::Node& constant, const WeightForm& form);
/// The zero points of s8 codes that it gives; empty: all are 0.
[[nodiscard]] std::vector<std::int32_t> weight_zeros(const ir::Node& constant);

}  // namespace octavo::plan
