#include "plan/candidates/second_stores.h"

#include <optional>
#include <utility>

#include "base/causes/plan_layout.h"
#include "plan/candidates/stages.h"
#include "plan/lowering/lower.h"
#include "region/store_results.h"

namespace octavo::plan {
namespace {

/// The store before `store` that has the same elements in the same type; nothing: there is none.
std::optional<std::size_t> same_before(const region::Stage& s, std::size_t store) {
  for (std::size_t i = 0; i < store; ++i) {
    const bool of_program = !s.program.outputs.empty();
    const bool same = of_program ? s.program.outputs[i] == s.program.outputs[store]
                                 : region::result_of_store(s.anchor, i) == region::result_of_store(s.anchor, store);
    if (same && s.stores[i].dtype == s.stores[store].dtype && s.stores[i].dims == s.stores[store].dims) return i;
  }
  return std::nullopt;
}

/// What the region becomes, and the copies behind it. Without copies: nothing is stored twice.
struct Once {
  region::Region region;
  std::vector<region::Region> copies;
};

Once stored_once(const region::Region& r, const std::string& device) {
  Once out{r, {}};
  if (r.stages.size() != 1 || r.graph_outputs.size() != r.stages.front().stores.size()) return out;
  const region::Stage& from = r.stages.front();
  region::Stage& to = out.region.stages.front();
  std::vector<std::int64_t> results;
  to.stores.clear(), to.program.outputs.clear();
  out.region.graph_outputs.clear();
  for (std::size_t i = 0; i < from.stores.size(); ++i) {
    const auto first = same_before(from, i);
    if (!first) {
      to.stores.push_back(from.stores[i]);
      if (!from.program.outputs.empty()) to.program.outputs.push_back(from.program.outputs[i]);
      out.region.graph_outputs.push_back(r.graph_outputs[i]);
      results.push_back(static_cast<std::int64_t>(region::result_of_store(from.anchor, i)));
      continue;
    }
    region::Region& copy = out.copies.emplace_back();
    copy.precision = region::Work::move;
    copy.reasons = {because<cause::no_kernel_stores_twice>(device)};
    copy.onnx_nodes = r.onnx_nodes;
    copy.name = "copy " + (from.stores[i].value.empty() ? r.name : from.stores[i].value);
    copy.stages.push_back(copy_stage(from.stores[*first], from.stores[i]));
    copy.device = r.device;
    copy.graph_inputs = {r.graph_outputs[*first]};
    copy.graph_outputs = {r.graph_outputs[i]};
  }
  if (!from.anchor.store_results.empty()) to.anchor.store_results = std::move(results);
  return out;
}

}  // namespace

void copy_second_stores(region::Plan& plan, const std::vector<const region::Provider*>& providers) {
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const region::Region& r = plan.regions[i];
    if (r.device == region::kHost || r.stages.size() != 1 || r.stages.front().stores.size() < 2) continue;
    Once once = stored_once(r, plan.devices[static_cast<std::size_t>(r.device)].name);
    if (once.copies.empty() || refusal(r, plan, providers).empty() || !refusal(once.region, plan, providers).empty()) continue;
    plan.regions[i] = std::move(once.region);
    const auto behind = plan.regions.begin() + static_cast<std::ptrdiff_t>(i) + 1;
    plan.regions.insert(behind, std::make_move_iterator(once.copies.begin()), std::make_move_iterator(once.copies.end()));
  }
}

}  // namespace octavo::plan
