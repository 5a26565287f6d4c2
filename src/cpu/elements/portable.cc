// The loops over elements for portable. See elements.h and CMakeLists.txt.
#include <type_traits>

#include "cpu/elements/elements.h"

namespace octavo::cpu {
namespace {

// In this order: each uses the ones before.
// clang-format off
#include "cpu/block/vec_portable.inc"
#include "program/elements.inc"
#include "cpu/elements/elements.inc"
// clang-format on

}  // namespace

const ElementKernels& portable_elements() {
  return kElements;
}

}  // namespace octavo::cpu
