// The family "attention.u8.warps": what attention.u8.mma computes, where a warp keeps 16 rows of scores (attention_warps.inc). For rows of features and of
// values that lie in pieces of 8 and 16 bytes, and probabilities that are rounded in steps of a constant.
#pragma once

#include "cuda/families/families.h"

namespace octavo::cuda {

struct AttentionWarpsTile {
  int warps = 4;
  static constexpr std::array<TileParameter<AttentionWarpsTile>, 1> kParameters{
      {{{"warps", "", "of a block, 16 queries each"}, {&AttentionWarpsTile::warps}}}};
};

}  // namespace octavo::cuda
