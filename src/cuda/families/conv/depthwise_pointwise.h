// The family "conv.u8s8.depthwise_pointwise": a depthwise convolution and the 1x1 convolution that alone reads it, a region of two stages
// (depthwise_pointwise.inc).
#pragma once

#include "cuda/family.h"

namespace octavo::cuda {

/// Parameters: "tile": rows x columns of pixels x channels of a block; "slab": channels of the depthwise convolution at a time, 32, 64 or 128; "warps":
/// along pixels x along channels; "item": rows x columns that a thread computes of the depthwise convolution at a time; "blocks" of a multiprocessor.
[[nodiscard]] const Family& depthwise_pointwise_family();

}  // namespace octavo::cuda
