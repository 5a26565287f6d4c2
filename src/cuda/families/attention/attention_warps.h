// The family "attention.u8.warps": what attention.u8.mma computes, where a warp keeps 16 rows of scores (attention_warps.inc). For rows of features and of
// values that lie in pieces of 8 and 16 bytes, and probabilities that are rounded in steps of a constant.
#pragma once

#include "cuda/families/families.h"

namespace octavo::cuda {

struct AttentionWarpsTile {
  int warps = 4, shared = 0, order = 0;
  static constexpr std::array<TileParameter<AttentionWarpsTile>, 3> kParameters{
      {{{"warps", "", "of a block"}, {&AttentionWarpsTile::warps}},
       {{"queries", "own|shared", "of the warps of a block: 16 each, or the same 16 and parts of the keys each"},
        {&AttentionWarpsTile::shared}},
       {{"sums", "bounds|order", "of exponentials: where bounds do not decide in the reference's order, or always"},
        {&AttentionWarpsTile::order}}}};
  /// Warps that have the same queries.
  [[nodiscard]] constexpr int members() const { return shared != 0 ? warps : 1; }
};

}  // namespace octavo::cuda
