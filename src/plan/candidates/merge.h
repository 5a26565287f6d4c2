// Regions of several stages: chains through cache, and regions side by side.
//
// Candidate fuse-conv-pool:  pool(conv(x)) ==> one region, in row tiles
//   Why    the convolution's result is read from cache, and never written to memory as a whole.
//   Exact  bit for bit: both compute what they computed, on the grid that the graph demands between them.
//   Needs  an integer conv whose result the pooling alone reads, and a provider that runs the pair.
//   Order  on the default plan. Default: joined.
//   Says   refusal, join_stages
//
// Candidate stages:  pointwise(depthwise(x)), depthwise(pointwise(x)), conv(q(x)) ==> one region, in row tiles
//   Why    as fuse-conv-pool; depthwise layers are bound by memory, and a network input can be quantized while it is read.
//   Exact  bit for bit, as fuse-conv-pool.
//   Needs  two regions, the second integer, whose value in between has no other reader, and a provider that runs the pair.
//   Order  on the default plan, repeatedly. Default: apart.
//   Says   refusal, join_stages
//
// Candidate stage-operand:  add(conv(x), conv(y)) ==> one region, in row tiles
//   Why    a residual branch's convolution whose result no pair rounds stores four bytes an element: they are added while they are in
//          cache, and are never written to memory as a whole.
//   Exact  bit for bit, as fuse-conv-pool.
//   Needs  a convolution or pooling whose epilogue alone reads another region's only result, element by element, both in two
//          spatial dimensions, and a provider that runs the pair. What makes the result may be a convolution, a pooling or a pass.
//   Order  on the default plan, repeatedly, beside stages. Default: joined where the result has 1.5 MiB or more (2 MiB for three
//          threads and more), else apart.
//   Says   refusal, join_stages
//
// Candidate horizontal:  conv(x, W1); conv(x, W2) ==> one region, side by side
//   Why    the input is read once while it is in cache, and small convolutions fill all threads together.
//   Exact  bit for bit: nothing is computed otherwise.
//   Needs  2 to 8 integer convolutions of one tensor; nothing between them reads a result of theirs.
//   Order  on the default plan. Default: apart.
//   Says   refusal, join_side_by_side
//
// Candidate one-pass:  parts of one stored tensor without a heavy operator ==> one region
//   Why    one pass over the parts of a concatenation instead of one a part.
//   Exact  bit for bit: nothing is computed otherwise.
//   Needs  2 to 8 pointwise regions that store into one buffer; nothing between them reads a result of theirs.
//   Order  on the default plan. Default: apart.
//   Says   refusal, join_side_by_side
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::plan {

/// Where a chain could be made longer: regions[second] alone reads what regions[first] stores, by its first anchor or epilogue.
struct Link {
  std::size_t first = 0, second = 0;
  ir::ValueId value = ir::kNone;  ///< between them
  std::string kind;               ///< "conv-pool", "depthwise-pointwise", "pointwise-depthwise", "quantize-conv", "stage-operand"
  int input = 0;                  ///< which of the second's graph_inputs the value is
};
inline constexpr std::string_view kStageOperand = "stage-operand";
[[nodiscard]] std::vector<Link> find_links(const region::Plan& plan);

/// Joins regions through every value of `staged` that is a link and that some provider takes; what is not taken stays apart and
/// says why, the last reason also as the result. Exact: stages are joined at the type and the grid that the graph demands between them.
std::optional<Reason> join_stages(region::Plan& plan, const std::set<ir::ValueId>& staged,
                                  const std::vector<const region::Provider*>& providers);

/// Single-stage regions that may run side by side: they share an input or store into one buffer, and nothing between them needs
/// their results. Each set has 2 to 8 region indices, ascending.
struct Neighbours {
  std::vector<std::size_t> regions;
  std::string kind;  ///< "horizontal" (convs that read one tensor) or "one-pass" (parts of one buffer, no anchor)
};
[[nodiscard]] std::vector<Neighbours> find_neighbours(const region::Plan& plan);

/// One independent region, at the place of the last, of the regions whose first results are `values`. Nothing, or why not.
std::optional<Reason> join_side_by_side(region::Plan& plan, const std::set<ir::ValueId>& values,
                                        const std::vector<const region::Provider*>& providers);

}  // namespace octavo::plan
