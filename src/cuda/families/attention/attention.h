// The family "attention.u8.mma": softmax of a product of codes, times a third matrix of codes, as one kernel (attention.inc). The probabilities are codes
// too, and both products are exact; exponentials are added in the reference's order, so the bits are those of the three operators.
#pragma once

#include "cuda/families/families.h"

namespace octavo::cuda {

struct AttentionTile {
  int queries = 64, warps = 4, depth = 64;
  static constexpr std::array<TileParameter<AttentionTile>, 3> kParameters{
      {{{"queries", "", "of a block, 16 or 32 a warp"}, {&AttentionTile::queries}},
       {{"warps", "", "of a block"}, {&AttentionTile::warps}},
       {{"depth", "", "keys a step of the second product: 32, 64 or 128"}, {&AttentionTile::depth}}}};
};

}  // namespace octavo::cuda
