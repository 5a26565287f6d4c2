// The families "conv.u8s8.mma", "conv.bf16.mma", "conv.tf32.mma" and "conv.f32.mma": convolutions of codes, of bfloat16, of float32 whose
// operands may be rounded to tf32, and of float32 whose operands may not, as implicit matrix products on tensor cores (conv.inc).
#pragma once

#include "cuda/family.h"
#include "cuda/text/epilogue.h"

namespace octavo::cuda {

[[nodiscard]] const Family& conv_mma_family();
[[nodiscard]] const Family& conv_bf16_family();
[[nodiscard]] const Family& conv_tf32_family();
/// Three products in tf32 for one of float32; the bound of its error is at octavo_split in split.inc.
[[nodiscard]] const Family& conv_f32_family();

/// What the family emits, with stores folded: for families that make other regions into convolutions.
[[nodiscard]] Result<KernelText> emit_conv(const region::Region& region, const region::Plan& plan, const Parameters& parameters,
                                           const Target& target, const Fold& fold);

/// Settings of the kernel, as its parameters spell them.
struct ConvTile {
  int m = 128, n = 128, k = 64;  ///< "tile": pixels x channels x bytes of depth a step
  int warps_m = 2, warps_n = 2;  ///< "warps"
  int stages = 3;                ///< "stages": steps of depth in shared memory
  int splits = 1;                ///< "splits": blocks that share a tile's depth
  int slices = 1;                ///< "slices": groups of warps of one block that share it
  int blocks = 2;                ///< "blocks": per multiprocessor
  bool resident = false;         ///< "filter": "resident" or "streamed"
  bool near_copy = false;        ///< "copies": "near" (through L1) or "far"
  bool groups = false;           ///< "products": "mma" of warps or "wgmma" of warpgroups (sm_90a)
};
[[nodiscard]] Parameters spell(const ConvTile& tile);
[[nodiscard]] Result<ConvTile> parse_conv_tile(const Parameters& parameters);

}  // namespace octavo::cuda
