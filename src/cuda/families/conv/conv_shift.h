// The family "conv.u8s8.shift": int8 convolutions with windows as products of warpgroups whose operand of every tap is one tile in shared
// memory, from another byte on (conv_shift.inc).
#pragma once

#include "cuda/family.h"

namespace octavo::cuda {

[[nodiscard]] const Family& conv_shift_family();

}  // namespace octavo::cuda
