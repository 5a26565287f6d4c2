// The loops over elements for avx512. See elements.h and CMakeLists.txt.
#include <type_traits>

#include "cpu/elements/elements.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace octavo::cpu {
namespace {

// In this order: each uses the ones before.
// clang-format off
#include "cpu/block/vec_avx512.inc"
#include "program/elements.inc"
#include "cpu/elements/elements.inc"
// clang-format on

}  // namespace

const ElementKernels& avx512_elements() {
  return kElements;
}

}  // namespace octavo::cpu
#endif
