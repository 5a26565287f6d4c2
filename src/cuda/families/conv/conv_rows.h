// The family "conv.u8s8.rows": convolutions of few channels, a network's first layer (conv_rows.inc).
#pragma once

#include "cuda/family.h"

namespace octavo::cuda {

/// Parameters: "tile": output rows x columns of a block, columns a multiple of 16; "channels" of a block: 16, 32 or 64; "warps" of a
/// block; "group": times 16 pixels that a warp computes at a time; "blocks" per multiprocessor.
[[nodiscard]] const Family& conv_rows_family();

/// "conv.u8s8.rows_pool": the same with the maximum over windows that alone reads the result, which never is in memory. "tile": pooled
/// rows x columns of a block; "pool": maxima of "codes" in shared memory, or of "sums" in registers.
[[nodiscard]] const Family& conv_rows_pool_family();

}  // namespace octavo::cuda
