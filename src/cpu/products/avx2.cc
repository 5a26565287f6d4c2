// Products of codes by vpmaddwd, pairs of words: vpmaddubsw would saturate. See products.h.
#include <cstddef>

#include "cpu/products/products.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace octavo::cpu {
namespace {

constexpr int kGroup = 2, kRows = 4, kVectors = 2;  // six rows and a product need all registers, and are no faster
// In this order: each uses the ones before.
// clang-format off
#include "cpu/block/vec_avx2.inc"
#include "cpu/products/packing.inc"

inline I dot(I sums, I left, I right) {
  return _mm256_add_epi32(sums, _mm256_madd_epi16(left, right));
}
#include "cpu/products/rows_by_columns.inc"
// clang-format on

constexpr CodeProducts kProducts{kGroup, 1, 1, pack_left, pack_right, row_terms, column_terms, multiply, nullptr, nothing, nothing};

}  // namespace

const CodeProducts& avx2_products() {
  return kProducts;
}

}  // namespace octavo::cpu
#endif
