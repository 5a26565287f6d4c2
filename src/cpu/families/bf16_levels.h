// The levels of products of bfloat16, as the families over them use them: each has families of its own, because it is an extension beside the levels
// that other kernels are compiled for.
#pragma once

#include <string>
#include <vector>

#include "cpu/cost_model.h"
#include "cpu/family.h"
#include "cpu/products/bf16_products.h"

namespace octavo::cpu {

struct Bf16Level {
  Isa isa;        ///< of the other kernels that the families use
  bool on_tiles;  ///< AMX-BF16; otherwise AVX512_BF16
  [[nodiscard]] const char* name() const { return on_tiles ? "amx" : "avx512bf16"; }
  [[nodiscard]] std::vector<std::string> required() const {
    return on_tiles ? std::vector<std::string>{"amx", "avx512bf16"} : std::vector<std::string>{"avx512bf16", "avx512vnni"};
  }
  /// Null: not in this build.
  [[nodiscard]] const Bf16Products* products() const {
#if defined(__x86_64__)
    return on_tiles ? &amx_bf16_products() : &avx512bf16_products();
#else
    return nullptr;
#endif
  }
  [[nodiscard]] std::int64_t depth_step() const {
    return on_tiles ? 16 : 1;
  }
  /// Clocks of a multiplication, with what its packing and its sums take.
  [[nodiscard]] double clocks_of_product() const {
    return 1.0 / (on_tiles ? kBf16ProductsAClockOnTiles : kBf16ProductsAClock);
  }
};
inline constexpr Bf16Level kBf16Tiles{Isa::amx, true}, kBf16Registers{Isa::avx512vnni, false};

[[nodiscard]] constexpr std::int64_t in_pairs(std::int64_t depth, std::int64_t step) {
  return ((depth + 1) / 2 + step - 1) / step * step;
}
[[nodiscard]] constexpr std::int64_t in_steps(std::int64_t n, std::int64_t step) {
  return (n + step - 1) / step * step;
}

}  // namespace octavo::cpu
