// The families "attention.f16.mma" and "attention.bf16.mma": softmax of a product of float16 or bfloat16 matrices, times a third one, as one kernel
// (attention_halves.inc) for any number of keys.
//
// What is rounded: scores where the graph rounds them, sums and softmax not (float32); of the second product the exponentials e^(score - greatest score
// so far), to the type, where the graph rounds the probabilities, their quotients. Both are off by at most half a unit in the last place of the type, so
// results differ from the three operators by at most one such unit (2^-10 in float16, 2^-8 in bfloat16) of the largest magnitude among the values, beside
// what sums in another order do.
#pragma once

#include "cuda/families/families.h"

namespace octavo::cuda {

struct HalvesTile {
  int queries = 64, warps = 4, keys = 64;
  static constexpr std::array<TileParameter<HalvesTile>, 3> kParameters{
      {{{"queries", "", "of a block, 16 or 32 a warp"}, {&HalvesTile::queries}},
       {{"warps", "", "of a block"}, {&HalvesTile::warps}},
       {{"keys", "", "that are in shared memory at once: 16, 32, 64 or 128"}, {&HalvesTile::keys}}}};
};

}  // namespace octavo::cuda
