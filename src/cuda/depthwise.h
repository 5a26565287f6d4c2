// The family "conv.u8s8.depthwise": convolutions with one input channel a group and as many groups as channels (depthwise.inc).
#pragma once

#include "cuda/family.h"

namespace octavo::cuda {

/// Parameters: "rows", "columns": output pixels of a thread; "threads" of a block.
[[nodiscard]] const Family& depthwise_family();

}  // namespace octavo::cuda
