// Attention: scores of queries and keys, softmax over the keys, and the product with the values as one region.
//
// Candidate attention:  matmul(softmax(matmul(q, k)), v) ==> one region, in tiles of queries
//   Why    the scores, queries x keys for each head, are read from cache and never written to memory as a whole; within a tile the
//          softmax runs over many queries at a time.
//   Exact  bit for bit: the programs behind each operator (scale, mask, roundings of Q/DQ pairs) run where they ran, every sum in its order.
//   Needs  a product of two computed matrices that softmax over the last dimension alone reads, whose result is the left side of another
//          product alone: both products of floats, of codes, of bfloat16 or of float16; and a provider that runs the three.
//   Order  on the default plan. Default: joined. Both are priced from effort 2 on, on a GPU always.
//   Says   join_attention
#pragma once

#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/reason.h"
#include "ir/graph.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::plan {

inline constexpr std::string_view kAttention = "attention";

/// The scores and what softmax makes of them.
using AttentionValues = std::pair<ir::ValueId, ir::ValueId>;

/// Three regions of one stage each, by index, and the values between them.
struct AttentionRegions {
  std::size_t scores = 0, softmax = 0, product = 0;
  AttentionValues values;
};
/// In the order of their last region. Each region is in one of them at most.
[[nodiscard]] std::vector<AttentionRegions> find_attention(const region::Plan& plan);

/// Makes one region of each three between whose stages the values are, if some provider takes it; what is not taken stays apart and says
/// why, the last reason also as the result.
Reasons join_attention(region::Plan& plan, const std::set<AttentionValues>& values,
                       const std::vector<const region::Provider*>& providers);

}  // namespace octavo::plan
