#include "plan/candidates/merge.h"

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

/// What row tiles are made for: the kinds of anchors, in two spatial dimensions.
bool in_row_tiles(const Stage& s) {
  const region::Anchor& a = s.anchor;
  const bool window = (a.op == ir::Op::conv && a.weights) || a.op == ir::Op::max_pool || a.op == ir::Op::avg_pool;
  return (window || a.none()) && s.space.size() == 4 && s.space[2] > 1;
}

/// Does an operand read each element where the store writes it? Dimensions of one element have stride 0 in operands.
bool same_place(const TensorRef& store, const TensorRef& operand) {
  bool same = store.dims == operand.dims && store.offset == operand.offset;
  for (std::size_t d = 0; d < store.dims.size() && same; ++d) same = store.dims[d] == 1 || store.strides[d] == operand.strides[d];
  return same;
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
std::optional<Reason> refusal(const Region& r, const Plan& plan, const std::vector<const region::Provider*>& providers) {
  Reason why = because<Cause::no_provider_for_region>();
  for (const region::Provider* p : providers) {
    for (const region::Offer& o : p->offers(r, plan)) {
      if (o.refusal.empty()) return std::nullopt;
      why = because<Cause::kernel_refused>(o.tactic.name(), o.refusal);
    }
  }
  return why;
}

Region chained(const Region& a, const Region& b, const Link& link) {
  Region both = a;
  both.name = a.name + " + " + b.name;
  both.onnx_nodes.insert(b.onnx_nodes.begin(), b.onnx_nodes.end());
  both.stages.insert(both.stages.end(), b.stages.begin(), b.stages.end());
  both.reasons.push_back(link.kind == kStageOperand ? because<Cause::stages_joined_in_epilogue>(b.name)
                                                    : because<Cause::stages_joined>(link.kind, b.name));
  add(both.reasons, b.reasons);
  both.precision = b.precision;
  const auto forwarded = static_cast<std::ptrdiff_t>(link.input);
  both.graph_inputs.insert(both.graph_inputs.end(), b.graph_inputs.begin(), b.graph_inputs.end());
  both.graph_inputs.erase(both.graph_inputs.end() - static_cast<std::ptrdiff_t>(b.graph_inputs.size()) + forwarded);
  both.graph_outputs = b.graph_outputs;
  return both;
}

}  // namespace

namespace {

/// Finds the links to a region's first stage.
class Links {
 public:
  explicit Links(const Plan& plan) : plan_(plan) {
    for (std::size_t i = 0; i < plan.regions.size(); ++i) {
      each_read(plan.regions[i], [&](const TensorRef& t) { readers_[t.buffer].push_back(i); });
      each_store(plan.regions[i], [&](const TensorRef& t) { writers_[t.buffer].push_back(i); });
    }
  }

  void by_anchor(std::size_t j, std::vector<Link>& out) const {
    const Stage& s = plan_.regions[j].stages[0];
    if (s.anchor.none() || s.anchor.inputs.size() != 1) return;
    const TensorRef& x = s.anchor.inputs[0];
    const auto i = maker(x);
    if (!i || plan_.regions[*i].stages.back().stores[0].dims != x.dims) return;
    const std::string kind = link_kind(plan_.regions[*i].stages.back(), s);
    if (!kind.empty()) out.push_back({*i, j, plan_.regions[*i].graph_outputs[0], kind, 0});
  }

  void by_epilogue(std::size_t j, std::vector<Link>& out) const {
    const Stage& s = plan_.regions[j].stages[0];
    if (!in_row_tiles(s) || s.anchor.inputs.size() != 1) return;  // copies and passes without an anchor are found and named as such
    for (std::size_t k = 0; k < s.operands.size(); ++k) {
      const region::Operand& o = s.operands[k];
      const bool as_it_is = std::all_of(o.div.begin(), o.div.end(), [](std::int64_t d) { return d == 1; });
      const auto i = as_it_is ? maker(o.ref) : std::nullopt;
      if (!i) continue;
      const Stage& last = plan_.regions[*i].stages.back();
      if (!in_row_tiles(last) || last.space != s.space || !same_place(last.stores[0], o.ref)) continue;
      out.push_back(
          {*i, j, plan_.regions[*i].graph_outputs[0], std::string(kStageOperand), static_cast<int>(s.anchor.inputs.size() + k)});
    }
  }

 private:
  /// The region that alone stores what is alone read here, and nothing else.
  [[nodiscard]] std::optional<std::size_t> maker(const TensorRef& t) const {
    if (plan_.buffers[static_cast<std::size_t>(t.buffer)].kind != region::BufferKind::arena) return std::nullopt;
    const auto w = writers_.find(t.buffer);
    if (w == writers_.end() || w->second.size() != 1 || readers_.at(t.buffer).size() != 1) return std::nullopt;
    const Region& a = plan_.regions[w->second[0]];
    if (a.independent || a.stages.empty() || a.stages.back().stores.size() != 1 || a.graph_outputs.size() != 1) return std::nullopt;
    if (a.stages.back().stores[0].dtype != t.dtype) return std::nullopt;
    return w->second[0];
  }

  const Plan& plan_;
  std::map<BufferId, std::vector<std::size_t>> readers_, writers_;
};

}  // namespace

std::vector<Link> find_links(const Plan& plan) {
  const Links links(plan);
  std::vector<Link> out;
  for (std::size_t j = 0; j < plan.regions.size(); ++j) {
    const Region& b = plan.regions[j];
    if (b.independent || b.stages.empty()) continue;
    links.by_anchor(j, out);
    links.by_epilogue(j, out);
  }
  return out;
}

std::optional<Reason> join_stages(Plan& plan, const std::set<ir::ValueId>& staged,
                                  const std::vector<const region::Provider*>& providers) {
  std::set<ir::ValueId> refused;
  std::optional<Reason> last;
  for (bool changed = true; changed;) {
    changed = false;
    for (const Link& link : find_links(plan)) {
      if (!staged.contains(link.value) || refused.contains(link.value)) continue;
      Region both = chained(plan.regions[link.first], plan.regions[link.second], link);
      if (const auto why = refusal(both, plan, providers)) {
        Reasons& reasons = plan.regions[link.second].reasons;
        reasons.push_back(because<Cause::stages_not_joined>(link.kind, plan.regions[link.first].name));
        reasons.push_back(*why);
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
bool can_run_side_by_side(const Plan& plan, const std::vector<std::size_t>& members) {
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
        if (members.size() > 8 || !can_run_side_by_side(plan, members)) members.pop_back();
      }
      if (members.size() > 1) out.push_back({members, kind});
    }
  };
  add(convs, "horizontal");
  add(parts, "one-pass");
  std::sort(out.begin(), out.end(), [](const Neighbours& a, const Neighbours& b) { return a.regions < b.regions; });
  return out;
}

std::optional<Reason> join_side_by_side(Plan& plan, const std::set<ir::ValueId>& values,
                                        const std::vector<const region::Provider*>& providers) {
  std::vector<std::size_t> members;
  for (std::size_t i = 0; i < plan.regions.size(); ++i) {
    const Region& r = plan.regions[i];
    if (r.stages.size() == 1 && !r.graph_outputs.empty() && values.contains(r.graph_outputs[0])) members.push_back(i);
  }
  if (members.size() < 2) return because<Cause::regions_not_there>();
  if (!can_run_side_by_side(plan, members))
    return because<Cause::result_needed_between>();  // other choices may have changed who reads what
  Region all;
  all.independent = true;
  all.reasons.push_back(because<Cause::grouped_side_by_side>(members.size()));
  for (const std::size_t m : members) {
    const Region& r = plan.regions[m];
    all.name += (all.name.empty() ? "" : " | ") + r.name;
    add(all.reasons, r.reasons);
    all.precision = all.precision.empty() || all.precision == r.precision ? r.precision : "mixed";
    all.onnx_nodes.insert(r.onnx_nodes.begin(), r.onnx_nodes.end());
    all.stages.push_back(r.stages[0]);
    all.graph_inputs.insert(all.graph_inputs.end(), r.graph_inputs.begin(), r.graph_inputs.end());
    all.graph_outputs.insert(all.graph_outputs.end(), r.graph_outputs.begin(), r.graph_outputs.end());
  }
  if (auto why = refusal(all, plan, providers)) return why;
  plan.regions[members.back()] = std::move(all);
  members.pop_back();
  for (std::size_t k = members.size(); k-- > 0;) plan.regions.erase(plan.regions.begin() + static_cast<std::ptrdiff_t>(members[k]));
  return std::nullopt;
}

}  // namespace octavo::plan
