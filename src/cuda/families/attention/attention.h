// The family "attention.u8.mma": softmax of a product of codes, times a third matrix of codes, as one kernel (attention.inc). The probabilities are codes
// too, and both products are exact; exponentials are added in the reference's order, so the bits are those of the three operators.
#pragma once

#include "cuda/family.h"

namespace octavo::cuda {

[[nodiscard]] const Family& attention_family();

/// Settings of the kernel, as its parameters spell them.
struct AttentionTile {
  int queries = 64;  ///< "queries": of a block, 16 or 32 a warp
  int warps = 4;     ///< "warps"
  int depth = 64;    ///< "depth": keys a step of the second product: 32, 64 or 128
};
[[nodiscard]] Parameters spell(const AttentionTile& tile);
[[nodiscard]] Result<AttentionTile> parse_attention_tile(const Parameters& parameters);

}  // namespace octavo::cuda
