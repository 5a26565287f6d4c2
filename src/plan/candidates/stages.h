// Regions of several stages: where they could be made, and making them. What stages forward is read from cache, and never written to
// memory as a whole.
//
// Candidate fuse-conv-pool:  pool(conv(x)) ==> one region, in row tiles
//   Why    the convolution's result is read from cache, and never written to memory as a whole.
//   Exact  bit for bit: both compute what they computed, on the grid that the graph demands between them.
//   Needs  an integer conv whose result the pooling alone reads, and a provider that runs the pair.
//   Order  on the default plan. Default: joined. On a GPU priced below effort 2 as well.
//   Says   refusal, join_stages
//
// Candidate stages:  pointwise(depthwise(x)), depthwise(pointwise(x)), conv(q(x)) ==> one region, in row tiles
//   Why    as fuse-conv-pool; depthwise layers are bound by memory, and a network input can be quantized while it is read.
//   Exact  bit for bit, as fuse-conv-pool.
//   Needs  two regions, the second integer, whose value in between has no other reader, and a provider that runs the pair.
//   Order  on the default plan, repeatedly. Default: apart. On a GPU depthwise + 1x1 is priced below effort 2 as well.
//   Says   refusal, join_stages
//
// Candidate stage-operand:  add(conv(x), conv(y)) ==> one region, in row tiles
//   Why    if no pair rounds the result of a residual branch's convolution, it takes four bytes for each element. The two are added
//          while the branch is in cache, and it is never written to memory as a whole.
//   Exact  bit for bit, as fuse-conv-pool.
//   Needs  a convolution or pooling whose epilogue alone reads another region's only result, element by element, both in two
//          spatial dimensions, and a provider that runs the pair. What makes the result may be a convolution, a pooling or a pass.
//   Order  on the default plan, repeatedly, beside stages. From effort 2 on both are priced. Below, joined where the result has one
//          and a half times the second-level cache of a core or more (twice, for three threads and more), else apart.
//   Says   refusal, join_stages
//
// Candidate stage-store:  y = f(x); z = conv(y); g(y, z) ==> one region for f and conv, in row tiles, which stores y as well
//   Why    the first of several readers reads the result while it is in cache: for example the first convolution of the next block
//          reads a block's result, before the sum of that block reads it again.
//   Exact  bit for bit, as fuse-conv-pool: what is forwarded and what is stored are one value.
//   Needs  a value of at least half a core's second-level cache (any, from effort 4 on) that other regions read after a convolution
//          has read it, and a provider that runs the pair.
//   Order  on the default plan. Default: apart.
//   Says   refusal, join_stages
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "region/provider.h"
#include "region/region.h"

namespace octavo::plan {

/// What two regions that could be one are to each other.
enum class LinkKind {
  none,
  conv_pool,
  depthwise_pointwise,
  pointwise_depthwise,
  quantize_conv,
  stage_operand,  ///< the value is an operand of the second region's epilogue
  stage_store,    ///< other regions read the value later
  chain,          ///< none of the others: joined as a part of a block alone
  attention,      ///< of plan/candidates/attention.h, which find_links does not look for
};
/// "conv-pool", as explanations and PlanOptions::priced say it.
[[nodiscard]] std::string_view name_of(LinkKind kind);

/// Where two regions could be one: a stage of regions[second] reads a result of regions[first], and nothing in between needs any.
struct Link {
  std::size_t first = 0, second = 0;
  ir::ValueId value = ir::kNone;  ///< between them
  LinkKind kind = LinkKind::none;
  std::int64_t bytes = 0;  ///< of the value as it is stored
};
/// The choice that a link raises by itself; empty: none.
[[nodiscard]] std::string_view choice_of(LinkKind kind);
inline constexpr std::string_view kStages = "stages", kFuseConvPool = "fuse-conv-pool", kStageOperand = "stage-operand",
                                  kStageStore = "stage-store";
[[nodiscard]] std::vector<Link> find_links(const region::Plan& plan);

/// Is this a kind of stage that row tiles are made for, in two spatial dimensions and more than one row? It computes on quantized
/// values, or is a pass without an anchor.
[[nodiscard]] bool in_row_tiles(const region::Stage& s);

/// A region of the two. Where others need a result of the first that the second reads, it is stored twice: once for the second alone,
/// into a new buffer at the end of `plan.buffers`.
[[nodiscard]] region::Region joined(region::Plan& plan, const Link& link);

/// Empty if some provider would run it; otherwise the refusal that was heard last.
[[nodiscard]] Reasons refusal(const region::Region& r, const region::Plan& plan,
                              const std::vector<const region::Provider*>& providers);

/// Joins regions through every value of `staged` that is a link and that some provider takes; what is not taken stays apart and
/// says why, the last reason also as the result. Exact: stages are joined at the type and the grid that the graph demands between them.
Reasons join_stages(region::Plan& plan, const std::set<ir::ValueId>& staged, const std::vector<const region::Provider*>& providers);

}  // namespace octavo::plan
