// Kernels generated at load time for AVX2, AVX-512 and AMX. Tactics, by example of AVX-512 VNNI (the table of all is in provider.cc):
//   cpu.conv.u8s8.avx512vnni.jit            conv and gemm, any kernel, stride, dilation, pads, groups
//   cpu.conv_transpose.u8s8.avx512vnni.jit  as stride_h * stride_w ordinary convolutions
//   cpu.depthwise.u8s8.avx512vnni.jit       conv with one input channel a group and multiplier 1
//   cpu.gather.avx512vbmi.jit               gather by constant indices along the innermost axis
#pragma once

#include "region/host_kernel.h"

namespace octavo::cpu {

/// Single-stage regions with an integer convolution or a gather as anchor; everything else is refused with a reason. Static
/// storage.
[[nodiscard]] const region::Provider& jit_provider();

}  // namespace octavo::cpu
