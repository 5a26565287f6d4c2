// The levels of products of bfloat16, as the families over them use them: each has rows of its own, because it is an extension beside the levels
// that other kernels are compiled for.
#pragma once

#include <array>
#include <string_view>

#include "cpu/cost_model.h"
#include "cpu/isa.h"
#include "cpu/products/bf16_products.h"

namespace octavo::cpu {

struct Bf16Level {
  std::string_view matmul, attention;  ///< names of rows
  std::array<Isa, 1> isa;              ///< of the other kernels that the families use
  std::int64_t depth_step;             ///< Bf16Products::depth_step
  double clocks_of_product;            ///< of a multiplication, with what its packing and its sums take
};
inline constexpr std::array kBf16Levels{
    Bf16Level{"matmul.bf16.rows.amx", "attention.bf16.queries.amx", {Isa::amx}, 16, 1.0 / kBf16ProductsAClockOnTiles},
    Bf16Level{"matmul.bf16.rows.avx512bf16", "attention.bf16.queries.avx512bf16", {Isa::avx512vnni}, 1, 1.0 / kBf16ProductsAClock}};

/// Of a level's isa. Null: not in this build.
[[nodiscard]] inline const Bf16Products* bf16_products(Isa isa) {
#if defined(__x86_64__)
  return isa == Isa::amx ? &amx_bf16_products() : &avx512bf16_products();
#else
  (void)isa;
  return nullptr;
#endif
}

}  // namespace octavo::cpu
