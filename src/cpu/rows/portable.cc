// The row kernels for portable. See rows.h and CMakeLists.txt.
#include "cpu/rows/rows.h"

namespace octavo::cpu {
namespace {

// In this order: each uses the ones before.
// clang-format off
#include "cpu/block/vec_portable.inc"
#include "cpu/rows/detection.inc"
#include "cpu/rows/rows.inc"
// clang-format on

}  // namespace

const RowKernels& portable_rows() {
  return kRows;
}

}  // namespace octavo::cpu
