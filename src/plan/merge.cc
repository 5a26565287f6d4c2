#include "plan/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace octavo::plan {
namespace {

using region::BufferId;
using region::Plan;
using region::Region;
using region::Stage;
using region::TensorRef;

template <class F>
void each_read(const Region& r, F f) {
  for (const Stage& s : r.stages) {
    for (const TensorRef& in : s.anchor.inputs) f(in);
    for (const auto& o : s.operands) f(o.ref);
  }
}
template <class F>
void each_store(const Region& r, F f) {
  for (const Stage& s : r.stages) {
    for (const TensorRef& out : s.stores) f(out);
  }
}
bool reads(const Region& r, BufferId b) {
  bool found = false;
  each_read(r, [&](const TensorRef& t) { found = found || t.buffer == b; });
  return found;
}

bool depthwise(const Stage& s) {
  return s.anchor.op == ir::Op::conv && s.anchor.weights && s.anchor.weights->dims[1] == 1 && s.space.size() == 4 &&
         ir::get_int(s.anchor.attrs, "group", 1) == s.space[1];
}
bool pointwise_conv(const Stage& s) {
  return s.anchor.op == ir::Op::conv && s.anchor.weights && s.anchor.weights->dims.size() == 4 && s.anchor.weights->dims[2] == 1 &&
         s.anchor.weights->dims[3] == 1 && ir::get_int(s.anchor.attrs, "group", 1) == 1;
}

/// The name of the chain a -> b, empty if it is not one that pays anywhere.
std::string link_kind(const Stage& a, const Stage& b) {
  if (!b.anchor.integer) return "";
  const bool pool = b.anchor.op == ir::Op::max_pool || b.anchor.op == ir::Op::avg_pool;
  if (a.anchor.op == ir::Op::conv && a.anchor.integer && pool) return "conv-pool";
  if (depthwise(a) && a.anchor.integer && pointwise_conv(b)) return "depthwise-pointwise";
  if (pointwise_conv(a) && a.anchor.integer && depthwise(b)) return "pointwise-depthwise";
  if (a.anchor.none() && b.anchor.op == ir::Op::conv) return "quantize-conv";
  return "";
}

/// Would some provider run it? Otherwise the reason that was heard last.
std::optional<std::string> refusal(const Region& r, const Plan& plan, const std::vector<const region::Provider*>& providers) {
  std::string why = "no provider knows this kind of region";
  for (const region::Provider* p : providers) {
    for (const region::Offer& o : p->offers(r, plan)) {
      if (o.refusal.empty()) return std::nullopt;
      why = o.tactic + ": " + o.refusal;
    }
  }
  return why;
}

Region chained(const Region& a, const Region& b, const std::string& kind) {
  Region both = a;
  both.name = a.name + " + " + b.name;
  both.onnx_nodes.insert(b.onnx_nodes.begin(), b.onnx_nodes.end());
  both.stages.insert(both.stages.end(), b.stages.begin(), b.stages.end());
  both.reason =
      fmt::format("{}; {}: \"{}\" alone reads the result, on its grid, so bands of rows stay in cache", a.reason, kind, b.name);
  if (!b.reason.empty()) both.reason += "; " + b.reason;
  both.precision = b.precision;
  both.graph_inputs.insert(both.graph_inputs.end(), b.graph_inputs.begin() + 1, b.graph_inputs.end());
  both.graph_outputs = b.graph_outputs;
  return both;
}

}  // namespace

std::vector<Link> find_links(const Plan& plan) {
  std::map<BufferId, std::vector<std::size_t>> readers, writers;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    each_read(plan.regions[i], [&](const TensorRef& t) { readers[t.buffer].push_back(i); });
    each_store(plan.regions[i], [&](const TensorRef& t) { writers[t.buffer].push_back(i); });
  }
  std::vector<Link> out;
  for (std::size_t j = 0; j < plan.regions.size(); ++j) {
    const Region& b = plan.regions[j];
    if (b.independent || b.stages.empty() || b.stages[0].anchor.none() || b.stages[0].anchor.inputs.size() != 1) continue;
    const TensorRef& x = b.stages[0].anchor.inputs[0];
    const auto& buffer = plan.buffers[static_cast<std::size_t>(x.buffer)];
    if (buffer.kind != region::BufferKind::arena || readers[x.buffer].size() != 1 || writers[x.buffer].size() != 1) continue;
    const std::size_t i = writers[x.buffer][0];
    const Region& a = plan.regions[i];
    if (a.independent || a.stages.empty()) continue;
    const Stage& last = a.stages.back();
    if (last.stores.size() != 1 || last.stores[0].dims != x.dims || last.stores[0].dtype != x.dtype || a.graph_outputs.size() != 1)
      continue;
    const std::string kind = link_kind(last, b.stages[0]);
    if (!kind.empty()) out.push_back({i, j, a.graph_outputs[0], kind});
  }
  return out;
}

std::string join_stages(Plan& plan, const std::set<ir::ValueId>& staged, const std::vector<const region::Provider*>& providers) {
  std::set<ir::ValueId> refused;
  std::string last;
  for (bool changed = true; changed;) {
    changed = false;
    for (const Link& link : find_links(plan)) {
      if (!staged.contains(link.value) || refused.contains(link.value)) continue;
      Region both = chained(plan.regions[link.first], plan.regions[link.second], link.kind);
      if (const auto why = refusal(both, plan, providers)) {
        plan.regions[link.second].reason +=
            fmt::format("; {} with \"{}\" is not possible: {}", link.kind, plan.regions[link.first].name, *why);
        refused.insert(link.value);
        last = *why;
        continue;
      }
      plan.regions[link.second] = std::move(both);
      plan.regions.erase(plan.regions.begin() + static_cast<std::ptrdiff_t>(link.first));
      changed = true;
      break;
    }
  }
  return last;
}

namespace {

/// True if the members (ascending) can run in the last one's place: nothing up to there reads what one of them stores.
bool can_run_together(const Plan& plan, const std::vector<std::size_t>& members) {
  for (const std::size_t m : members) {
    for (std::size_t k = m + 1; k <= members.back(); ++k) {
      bool clash = false;
      each_store(plan.regions[m], [&](const TensorRef& t) { clash = clash || reads(plan.regions[k], t.buffer); });
      if (clash) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<Neighbours> find_neighbours(const Plan& plan) {
  std::map<BufferId, std::vector<std::size_t>> convs, parts;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const Region& r = plan.regions[i];
    if (r.stages.size() != 1 || r.graph_outputs.empty()) continue;
    const Stage& s = r.stages[0];
    if (s.anchor.op == ir::Op::conv && s.anchor.integer) convs[s.anchor.inputs[0].buffer].push_back(i);
    if (s.anchor.none() && s.stores.size() == 1) parts[s.stores[0].buffer].push_back(i);
  }
  std::vector<Neighbours> out;
  const auto add = [&](const auto& by_buffer, const char* kind) {
    for (const auto& [buffer, list] : by_buffer) {
      std::vector<std::size_t> members;
      for (const std::size_t i : list) {
        members.push_back(i);
        if (members.size() > 8 || !can_run_together(plan, members)) members.pop_back();
      }
      if (members.size() > 1) out.push_back({members, kind});
    }
  };
  add(convs, "horizontal");
  add(parts, "one-pass");
  std::sort(out.begin(), out.end(), [](const Neighbours& a, const Neighbours& b) { return a.regions < b.regions; });
  return out;
}

std::string join_together(Plan& plan, const std::set<ir::ValueId>& values, const std::vector<const region::Provider*>& providers) {
  std::vector<std::size_t> members;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const Region& r = plan.regions[i];
    if (r.stages.size() == 1 && !r.graph_outputs.empty() && values.contains(r.graph_outputs[0])) members.push_back(i);
  }
  if (members.size() < 2) return "the regions are not there";
  if (!can_run_together(plan, members))
    return "a region between them needs a result";  // other choices may have changed who reads what
  Region all;
  all.independent = true;
  for (const std::size_t m : members) {
    const Region& r = plan.regions[m];
    all.name += (all.name.empty() ? "" : " | ") + r.name;
    all.reason += (all.reason.empty() ? "side by side: " : "; ") + r.reason;
    all.precision = all.precision.empty() || all.precision == r.precision ? r.precision : "mixed";
    all.onnx_nodes.insert(r.onnx_nodes.begin(), r.onnx_nodes.end());
    all.stages.push_back(r.stages[0]);
    all.graph_inputs.insert(all.graph_inputs.end(), r.graph_inputs.begin(), r.graph_inputs.end());
    all.graph_outputs.insert(all.graph_outputs.end(), r.graph_outputs.begin(), r.graph_outputs.end());
  }
  if (auto why = refusal(all, plan, providers)) return *why;
  plan.regions[members.back()] = std::move(all);
  members.pop_back();
  for (std::size_t k = members.size(); k-- > 0;) plan.regions.erase(plan.regions.begin() + static_cast<std::ptrdiff_t>(members[k]));
  return "";
}

}  // namespace octavo::plan
