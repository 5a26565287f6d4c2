// Families over the loops of cpu/elements.
#pragma once

#include "cpu/elements/elements.h"
#include "cpu/family.h"

namespace octavo::cpu {

/// The loops over elements of a level that block kernels are compiled for.
[[nodiscard]] inline const ElementKernels& element_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::avx512) return avx512_elements();
  if (isa >= Isa::avx2) return avx2_elements();
#endif
  (void)isa;
  return portable_elements();
}

}  // namespace octavo::cpu
