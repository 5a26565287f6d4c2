// The row kernels for portable. See rows.h and CMakeLists.txt.
#include "cpu/rows/attention_rows.h"
#include "cpu/rows/rows.h"

namespace octavo::cpu {
namespace {

// In this order: each uses the ones before.
// clang-format off
#include "cpu/block/vec_portable.inc"
#include "cpu/rows/detection.inc"
#include "cpu/rows/sums.inc"
#include "cpu/rows/arg_max.inc"
#include "cpu/rows/softmax.inc"
#include "cpu/rows/rows.inc"
#include "cpu/rows/attention.inc"
// clang-format on

}  // namespace

const RowKernels& portable_rows() {
  return kRows;
}
const AttentionRows& portable_attention() {
  return kAttention;
}

}  // namespace octavo::cpu
