// The family "conv.u8s8.window": int8 convolutions with windows over few channels, whose input tiles lie in shared memory
// (conv_window.inc).
#pragma once

#include "cuda/family.h"

namespace octavo::cuda {

[[nodiscard]] const Family& conv_window_family();

}  // namespace octavo::cuda
