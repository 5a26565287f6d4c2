// The row kernels for avx2. See rows.h and CMakeLists.txt.
#include "cpu/rows/rows.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace octavo::cpu {
namespace {

// In this order: each uses the ones before.
// clang-format off
#include "cpu/block/vec_avx2.inc"
#include "cpu/rows/detection.inc"
#include "cpu/rows/rows.inc"
// clang-format on

}  // namespace

const RowKernels& avx2_rows() {
  return kRows;
}

}  // namespace octavo::cpu
#endif
