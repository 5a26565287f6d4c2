#include "plan/candidates/attention.h"

#include <map>
#include <optional>
#include <string>

#include "base/causes/plan_regions.h"
#include "plan/candidates/stages.h"
#include "region/in_place.h"
#include "region/stage_graph.h"

namespace octavo::plan {
namespace {

using region::BufferId;
using region::Plan;
using region::Region;
using region::Stage;
using region::TensorRef;

bool product(const Region& r) {
  const region::Anchor& a = r.stages[0].anchor;
  return a.op == ir::Op::matmul && !a.weights && a.inputs.size() == 2;
}
bool softmax(const Region& r) {
  const region::Anchor& a = r.stages[0].anchor;
  const auto last = static_cast<std::int64_t>(r.stages[0].space.size()) - 1;
  return a.op == ir::Op::softmax && a.inputs.size() == 1 && a.as<ir::Along>().axis == last;
}

/// For each buffer of working memory the regions that store it, and how often stages read it.
struct Uses {
  std::map<BufferId, std::vector<std::size_t>> makers;
  std::map<BufferId, int> reads;
  explicit Uses(const Plan& plan) {
    for (std::size_t i = 0; i < plan.regions.size(); ++i) {
      for (const Stage& s : plan.regions[i].stages) {
        for (std::size_t k = 0; k < region::input_count(s); ++k) ++reads[region::input_of(s, k).buffer];
        for (const TensorRef& t : s.stores) makers[t.buffer].push_back(i);
      }
    }
  }
};

/// The region whose only result the tensor is, all of it, which is read here alone.
std::optional<std::size_t> made_for(const Plan& plan, const Uses& uses, const TensorRef& t) {
  if (plan.buffers[static_cast<std::size_t>(t.buffer)].kind != region::BufferKind::arena || uses.reads.at(t.buffer) != 1) return {};
  const auto made = uses.makers.find(t.buffer);
  if (made == uses.makers.end() || made->second.size() != 1) return {};
  const Region& r = plan.regions[made->second[0]];
  if (r.independent || r.stages.size() != 1 || r.stages[0].stores.size() != 1 || r.graph_outputs.size() != 1) return {};
  const TensorRef& store = r.stages[0].stores[0];
  if (store.dtype != t.dtype || !region::same_places(store, t)) return {};
  return made->second[0];
}

}  // namespace

std::vector<AttentionRegions> find_attention(const Plan& plan) {
  const Uses uses(plan);
  std::vector<AttentionRegions> out;
  for (std::size_t j = 0; j < plan.regions.size(); ++j) {
    const Region& last = plan.regions[j];
    if (last.independent || last.stages.size() != 1 || !product(last)) continue;
    const auto middle = made_for(plan, uses, last.stages[0].anchor.inputs[0]);
    if (!middle || *middle >= j || !softmax(plan.regions[*middle])) continue;
    const auto first = made_for(plan, uses, plan.regions[*middle].stages[0].anchor.inputs[0]);
    if (!first || *first >= *middle || !product(plan.regions[*first])) continue;
    if (plan.regions[*first].device != last.device || plan.regions[*middle].device != last.device) continue;
    out.push_back({*first, *middle, j, {plan.regions[*first].graph_outputs[0], plan.regions[*middle].graph_outputs[0]}});
  }
  return out;
}

Reasons join_attention(Plan& plan, const std::set<AttentionValues>& values, const std::vector<const region::Provider*>& providers) {
  Reasons last;
  std::set<std::size_t> gone;
  for (const AttentionRegions& a : find_attention(plan)) {
    if (!values.contains(a.values)) continue;
    Region softmax_alone = plan.regions[a.softmax];
    plan.regions[a.softmax] = joined(plan, {a.scores, a.softmax, a.values.first, LinkKind::attention});
    Region whole = joined(plan, {a.softmax, a.product, a.values.second, LinkKind::attention});
    if (const Reasons why = refusal(whole, plan, providers); !why.empty()) {
      Reasons& reasons = plan.regions[a.product].reasons;
      reasons.push_back(because<cause::stages_not_joined>(kAttention, softmax_alone.name));
      add(reasons, why);
      last = why;
      plan.regions[a.softmax] = std::move(softmax_alone);
      continue;
    }
    plan.regions[a.product] = std::move(whole);
    gone.insert({a.scores, a.softmax});
  }
  for (auto i = gone.rbegin(); i != gone.rend(); ++i) plan.regions.erase(plan.regions.begin() + static_cast<std::ptrdiff_t>(*i));
  return last;
}

}  // namespace octavo::plan
