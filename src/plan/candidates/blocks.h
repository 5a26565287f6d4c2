// Blocks: several regions that could be one, because each but the last is read within the block alone.
//
// Candidate block:  conv(conv(conv(x))) [+ x, or + conv(x)] ==> one region, in row tiles
//   Why    the tensors between the convolutions of a bottleneck are read from cache and never written to memory as a whole: the
//          wide tensors of an inverted bottleneck, both branches of a residual block with a projection. Pairs of its stages may
//          gain less, or nothing.
//   Exact  bit for bit: every stage computes what it computed, on the grid that the graph demands between them.
//   Needs  2 to 5 convolutions, poolings and passes in two spatial dimensions, on quantized values; each but the last has one
//          reader, which is one of them; and a provider that runs them. From effort 4 on the choice is always priced. Below, two
//          conditions must hold. The values between are at least half of a core's second-level cache, because smaller ones stay
//          there anyway. The weights are at most half of it, because every row tile reads them again.
//   Order  on the default plan, beside stages, and refused as they are. Default: apart.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "ir/graph.h"
#include "region/region.h"

namespace octavo::plan {

inline constexpr std::string_view kBlock = "block";

struct Block {
  std::size_t last = 0;            ///< the region whose results are the block's
  std::set<ir::ValueId> values;    ///< between its regions: to be staged
  std::int64_t between_bytes = 0;  ///< of these values as they are stored
  std::int64_t weight_bytes = 0;   ///< of all its stages, as the model has them
};

/// Disjoint blocks of two and more regions, by their last region, from the network's end on. A block grows against the direction of
/// the data: by the maker of a value that one of its regions alone reads. It ends where a value is read by several, where five stages
/// are reached, and from three regions on before the narrowest value so far: chains are cut where least lies between.
[[nodiscard]] std::vector<Block> find_blocks(const region::Plan& plan);

/// Is it worth asking for times with so much second-level cache?
[[nodiscard]] bool worth_pricing(const Block& block, std::int64_t l2_bytes);

}  // namespace octavo::plan
