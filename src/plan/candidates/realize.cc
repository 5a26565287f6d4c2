// From a selection to a plan: segments -> groups -> allocations -> regions -> devices -> stages and neighbours.
#include <algorithm>

#include "base/causes/plan_candidates.h"
#include "base/machine.h"
#include "plan/candidates/above_moves.h"
#include "plan/candidates/choices.h"
#include "plan/candidates/neighbours.h"
#include "plan/candidates/second_stores.h"
#include "plan/candidates/segments.h"
#include "plan/candidates/split_conv.h"
#include "plan/candidates/split_views.h"
#include "plan/candidates/stages.h"
#include "plan/layout/counted.h"
#include "plan/layout/place.h"
#include "plan/lowering/lower.h"
#include "plan/regions/group.h"
#include "plan/regions/provenance.h"
#include "region/host_kernel.h"

namespace octavo::plan {

OCTAVO_DEFINE_OUT_OF_LINE(Selection);
bool Selection::operator==(const Selection&) const = default;
OCTAVO_DEFINE_OUT_OF_LINE(Realized);

namespace {

/// Everything runs on the device of the preferred provider. Where the host's providers are given too, a region that no kernel of that device
/// takes, and one of the host does, runs on the host and says so; otherwise nothing is moved to another device.
void choose_devices(region::Plan& plan, const std::vector<const region::Provider*>& providers) {
  const std::string host = plan.devices[region::kHost].name;
  if (providers.empty() || providers.front()->device() == host) return;
  const std::string preferred(providers.front()->device());
  plan.devices.push_back({preferred, 0});
  for (region::Region& r : plan.regions) r.device = 1;
  copy_second_stores(plan, providers);
  if (std::none_of(providers.begin(), providers.end(), [&](const region::Provider* p) { return p->device() == host; })) return;
  for (region::Region& r : plan.regions) {
    const Reasons why = refusal(r, plan, providers);
    if (why.empty()) continue;
    r.device = region::kHost;
    if (!refusal(r, plan, providers).empty()) {
      r.device = 1;
      continue;
    }
    r.reasons.push_back(because<cause::no_kernel_on_device>(preferred, host));
    add(r.reasons, why);
  }
}

}  // namespace

Result<Realized> realize(const ir::Graph& normalized, const Selection& selection, const PlanContext& context) {
  Realized out;
  out.graph = normalized;
  for (const ir::NodeId id : selection.segments) make_segments(out.graph, ir::find_grids(out.graph), id);
  for (const ir::NodeId id : selection.split_convs) make_split_conv(out.graph, ir::find_grids(out.graph), id);
  for (const ir::ValueId v : selection.split_views) make_split_views(out.graph, v);
  std::vector<std::set<ir::ValueId>> parts;
  ir::Grids known;  // of values that were there when it was found
  for (const ir::NodeId id : selection.above_moves) {
    if (static_cast<std::size_t>(out.graph.node(id).inputs[0]) >= known.of.size()) known = ir::find_grids(out.graph);
    parts.push_back(make_above_moves(out.graph, known, id));
  }
  const ir::Grids grids = ir::find_grids(out.graph);
  const Grouping grouping =
      make_groups(out.graph, context.options.disabled, selection.apart, selection.small, fills_behind_counts(out.graph));
  OCTAVO_TRY(Placement placement, place(out.graph, grids, grouping, selection.direct, selection.as_made));
  OCTAVO_TRY(auto regions, lower(out.graph, grids, grouping, placement, context.memo));
  account_for_moves(out.graph, regions);
  out.in_rows = std::move(placement.in_rows);
  region::Plan& plan = out.plan;
  plan.model_name = out.graph.name;
  plan.inputs = std::move(placement.inputs);
  plan.outputs = std::move(placement.outputs);
  plan.sizes = std::move(placement.sizes);
  plan.buffers = std::move(placement.buffers);
  plan.regions = std::move(regions);
  plan.threads = context.options.threads;
  choose_devices(plan, context.providers);
  out.refusal = join_stages(plan, selection.staged, context.providers);
  if (Reasons why = join_attention(plan, selection.attention, context.providers); !why.empty()) out.refusal = std::move(why);
  const bool apart = context.options.disabled.contains("horizontal");
  if (context.options.usual.contains(kHorizontalLayers) && !apart) {
    for (auto& values : layers_side_by_side(plan)) parts.push_back(std::move(values));
  }
  for (const auto& values : parts) {
    if (!apart && values.size() > 1)
      (void)join_side_by_side(plan, values, context.providers);  // where no kernel takes them they stay apart
  }
  for (const auto& values : selection.grouped) {
    if (Reasons why = join_side_by_side(plan, values, context.providers); !why.empty()) out.refusal = std::move(why);
  }
  return out;
}

std::set<ir::ValueId> find_default_stages(const region::Plan& unfused, const PlanOptions& options) {
  // More than a core's second-level cache holds beside what else is read: what is written there comes back from farther away. Of
  // many threads each holds a part.
  const std::int64_t l2 = machine_of(options).l2_bytes;
  const std::int64_t from = l2 / 2 * (options.threads < region::kSharingWorkers ? 3 : 4);
  std::set<ir::ValueId> staged;
  for (const Link& link : find_links(unfused)) {
    const bool large = link.bytes >= from;
    const bool pool = link.kind == LinkKind::conv_pool && !options.disabled.contains(kFuseConvPool);
    const bool operand = link.kind == LinkKind::stage_operand && large && !options.disabled.contains(kStageOperand);
    if (pool || operand) staged.insert(link.value);
  }
  return staged;
}

std::set<AttentionValues> find_default_attention(const region::Plan& unfused, const PlanOptions& options) {
  std::set<AttentionValues> out;
  if (options.disabled.contains(kAttention)) return out;
  for (const AttentionRegions& a : find_attention(unfused)) out.insert(a.values);
  return out;
}

Result<Defaults> realize_defaults(const ir::Graph& normalized, const PlanContext& context) {
  Defaults out;
  OCTAVO_TRY(out.made, realize(normalized, {}, context));
  out.selection.staged = find_default_stages(out.made.plan, context.options);
  out.selection.attention = find_default_attention(out.made.plan, context.options);
  if (!out.selection.staged.empty() || !out.selection.attention.empty()) {
    OCTAVO_TRY(out.made, realize(normalized, out.selection, context));
  }
  return out;
}

}  // namespace octavo::plan
