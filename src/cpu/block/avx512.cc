// The block kernels for avx512. See block.h and CMakeLists.txt.
#include "cpu/block/block.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace octavo::cpu {
namespace {

// In this order: each uses the ones before.
// clang-format off
#include "cpu/block/vec_avx512.inc"
#include "cpu/block/program.inc"
#include "cpu/block/conv.inc"
#include "cpu/block/reduce.inc"
// clang-format on

}  // namespace

const KernelTable& avx512_table() {
  static const KernelTable table{"avx512",     kLanes,        kConvChannels, kConvPixels, run_block, conv_i16,       conv_f32,
                                 depthwise_u8, depthwise_f32, reduce,        widen,       blend,     transpose_lanes};
  return table;
}

}  // namespace octavo::cpu
#endif
