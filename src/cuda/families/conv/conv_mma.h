// The families "conv.u8s8.mma", "conv.bf16.mma", "conv.f16.mma", "conv.tf32.mma" and "conv.f32.mma": convolutions of codes, of bfloat16, of float16,
// of float32 whose operands may be rounded to tf32, and of float32 whose operands may not (three products in tf32 for one of float32; the bound of its
// error is at octavo_split in split.inc), as implicit matrix products on tensor cores (conv.inc). Other families make other regions into them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cuda/families/conv/conv_shape.h"

namespace octavo::cuda {

struct ConvTile {
  int m = 128, n = 128, k = 64;
  int warps_m = 2, warps_n = 2;
  int stages = 3, splits = 1, slices = 1, blocks = 2;
  int resident = 0, near_copy = 0, groups = 0;
  static constexpr std::array<TileParameter<ConvTile>, 9> kParameters{
      {{{"tile", "", "pixels x channels of a block x bytes of depth a step"}, {&ConvTile::m, &ConvTile::n, &ConvTile::k}},
       {{"warps", "", "along pixels x along channels"}, {&ConvTile::warps_m, &ConvTile::warps_n}},
       {{"stages", "", "steps of depth in shared memory", true}, {&ConvTile::stages}},
       {{"splits", "", "blocks that share a tile's depth"}, {&ConvTile::splits}},
       {{"slices", "", "groups of warps of one block that share it"}, {&ConvTile::slices}},
       {{"blocks", "", "of a multiprocessor"}, {&ConvTile::blocks}},
       {{"filter", "streamed|resident", "in shared memory step by step, or as a whole", true}, {&ConvTile::resident}},
       {{"copies", "far|near", "of the input from L2, or through L1", true}, {&ConvTile::near_copy}},
       {{"products", "mma|wgmma", "of warps, or of warpgroups (sm_90a)"}, {&ConvTile::groups}}}};
};

/// A convolution, and where the region has two stages the one whose results its program adds (conv.inc).
struct ConvProducts {
  ConvSetting conv;
  std::optional<ConvSetting> before;
  int forwarded = -1;  ///< the operand that those results are
  Fold fold;           ///< of the stores
  std::string function = "octavo_conv";
};
[[nodiscard]] Result<ConvProducts> match_conv(const region::Region& region, const region::Plan& plan, const Target& target,
                                              ConvType type = ConvType::u8s8);
/// The best guess first; never empty.
[[nodiscard]] std::vector<Choice<ConvTile>> conv_tactics(const ConvProducts& setting, const Target& target);
[[nodiscard]] Result<KernelText> emit_conv(const ConvProducts& setting, const ConvTile& tile, const Target& target);

}  // namespace octavo::cuda
