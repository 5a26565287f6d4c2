// Products of codes by vpdpbusd. See products.h.
#include <cstddef>

#include "cpu/products/products.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace octavo::cpu {
namespace {

constexpr int kGroup = 4, kRows = 8, kVectors = 2;
// In this order: each uses the ones before.
// clang-format off
#include "cpu/block/vec_avx512.inc"
#include "cpu/products/packing.inc"

inline I dot(I sums, I left, I right) {
  return _mm512_dpbusd_epi32(sums, left, right);
}
#include "cpu/products/rows_by_columns.inc"
// clang-format on

constexpr CodeProducts kProducts{kGroup, 1, 1, pack_left, pack_right, row_terms, column_terms, multiply, nullptr, nothing, nothing};

}  // namespace

const CodeProducts& avx512vnni_products() {
  return kProducts;
}

}  // namespace octavo::cpu
#endif
