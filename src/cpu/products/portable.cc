// Products of codes without vector instructions. See products.h.
#include <cstddef>

#include "cpu/products/products.h"

namespace octavo::cpu {
namespace {

constexpr int kGroup = 4;
// In this order: each uses the ones before.
// clang-format off
#include "cpu/block/vec_portable.inc"
#include "cpu/products/packing.inc"
// clang-format on

void multiply(std::int32_t* sums, std::int64_t step, const std::int32_t* row_terms, const std::int32_t* column_terms,
              const std::uint32_t* left, std::int64_t left_step, std::int64_t rows, const std::uint32_t* right,
              std::int64_t right_step, std::int64_t columns, std::int64_t groups) {
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int32_t* const to = sums + r * step;
    for (std::int64_t c = 0; c < columns; ++c) to[c] = row_terms[r] + column_terms[c];
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::uint32_t codes = left[r * left_step + g];
      const auto a0 = static_cast<std::int32_t>(codes & 255), a1 = static_cast<std::int32_t>(codes >> 8 & 255),
                 a2 = static_cast<std::int32_t>(codes >> 16 & 255), a3 = static_cast<std::int32_t>(codes >> 24);
      for (std::int64_t c = 0; c < columns; ++c) {
        const std::uint32_t b = right[g * right_step + c];
        to[c] += a0 * static_cast<std::int8_t>(b) + a1 * static_cast<std::int8_t>(b >> 8) + a2 * static_cast<std::int8_t>(b >> 16) +
                 a3 * static_cast<std::int8_t>(b >> 24);
      }
    }
  }
}
void nothing() {}

constexpr CodeProducts kProducts{kGroup, 1, 1, pack_left, pack_right, row_terms, column_terms, multiply, nullptr, nothing, nothing};

}  // namespace

const CodeProducts& portable_products() {
  return kProducts;
}

}  // namespace octavo::cpu
