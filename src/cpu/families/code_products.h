// Products of matrices of codes, as the families over them use them.
#pragma once

#include "cpu/cost_model.h"
#include "cpu/family.h"
#include "cpu/products/products.h"

namespace octavo::cpu {

/// The products of a level of kDotIsas.
[[nodiscard]] inline const CodeProducts& code_products(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::amx) return amx_products();
  if (isa >= Isa::avx512vnni) return avx512vnni_products();
  if (isa >= Isa::avx2) return avx2_products();
#endif
  (void)isa;
  return portable_products();
}

/// Empty, or why a matrix is not one of codes with one quantizer.
[[nodiscard]] inline Reasons why_no_codes(const region::TensorRef& t) {
  if (t.dtype != ir::DType::u8 || !t.quantizer || !t.quantizer->per_tensor())
    return unmet("type of a matrix", ir::name_of(t.dtype), "u8 codes with one scale");
  return {};
}

/// Clocks of a multiplication of codes, with what its packing and its sums take.
[[nodiscard]] inline double clocks_of_product(Isa isa) {
  return 1.0 / code_products_a_clock(isa);
}

}  // namespace octavo::cpu
