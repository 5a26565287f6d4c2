// The family "conv.u8s8.stream": int8 convolutions as products of warpgroups whose rows are gathered from slabs of the input in shared
// memory, beside a filter that streams past them (conv_stream.inc).
#pragma once

#include "cuda/family.h"

namespace octavo::cuda {

[[nodiscard]] const Family& conv_stream_family();

}  // namespace octavo::cuda
