// The row kernels for avx512. See rows.h and CMakeLists.txt.
#include "cpu/rows/attention_rows.h"
#include "cpu/rows/rows.h"
#include "cpu/rows/winograd_rows.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace octavo::cpu {
namespace {

// In this order: each uses the ones before.
// clang-format off
#include "cpu/block/vec_avx512.inc"
#include "cpu/rows/detection.inc"
#include "cpu/rows/sums.inc"
#include "cpu/rows/arg_max.inc"
#include "cpu/rows/softmax.inc"
#include "cpu/rows/rows.inc"
#include "cpu/rows/attention.inc"
#include "cpu/rows/winograd.inc"
// clang-format on

}  // namespace

const RowKernels& avx512_rows() {
  return kRows;
}
const AttentionRows& avx512_attention() {
  return kAttention;
}
const WinogradRows& avx512_winograd() {
  return kWinograd;
}

}  // namespace octavo::cpu
#endif
