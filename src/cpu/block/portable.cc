// The block kernels for portable. See block.h and CMakeLists.txt.
#include "cpu/block/block.h"

namespace octavo::cpu {
namespace {

// In this order: each uses the ones before.
// clang-format off
#include "cpu/block/vec_portable.inc"
#include "cpu/block/program.inc"
#include "cpu/block/conv.inc"
#include "cpu/block/reduce.inc"
// clang-format on

}  // namespace

const KernelTable& portable_table() {
  static const KernelTable table{"portable", kLanes,       kConvChannels, kConvPixels, run_block, conv_i16,
                                 conv_f32,   depthwise_u8, depthwise_f32, reduce,      widen,     blend};
  return table;
}

}  // namespace octavo::cpu
